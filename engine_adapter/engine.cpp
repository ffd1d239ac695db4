#include "engine_adapter/engine.h"

#include "common/error.h"

namespace tandem::engine {

std::size_t tensor_bytes(const TensorInfo& tensor) {
    return static_cast<std::size_t>(numel(tensor.shape)) * dtype_size(tensor.dtype);
}

ops::Checksum manifest_checksum(std::int64_t version, const std::vector<TensorInfo>& tensors,
                                const std::vector<ops::Checksum>& checksums) {
    require(tensors.size() == checksums.size(), "manifest of {} tensors with {} checksums", tensors.size(),
            checksums.size());
    std::string text = std::to_string(version) + "\n";
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        text += tensors[i].name;
        text += '\t';
        text += dtype_name(tensors[i].dtype);
        text += '\t';
        text += to_string(tensors[i].shape);
        text += '\t';
        text += ops::to_hex(checksums[i]);
        text += '\n';
    }
    return ops::checksum({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace tandem::engine
