#include "engine_adapter/engine.h"

#include <algorithm>
#include <map>

#include "common/error.h"

namespace tandem::engine {

std::size_t tensor_bytes(const TensorInfo& tensor) {
    return static_cast<std::size_t>(numel(tensor.shape)) * dtype_size(tensor.dtype);
}

DType main_dtype(const std::vector<TensorInfo>& tensors) {
    std::map<DType, std::size_t> bytes;
    for (const TensorInfo& tensor : tensors) bytes[tensor.dtype] += tensor_bytes(tensor);
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    return bytes.empty() ? DType::float32 : std::max_element(bytes.begin(), bytes.end(), fewer)->first;
}

ops::Checksum manifest_checksum(std::int64_t version, const std::vector<TensorInfo>& tensors,
                                const TransferPlan& plan, std::span<const ops::Checksum> transfers) {
    require(transfers.size() == plan.transfers.size(), "manifest of {} transfers with {} checksums",
            plan.transfers.size(), transfers.size());
    // Sorted by tensor, each tensor's in the plan's order.
    std::vector<std::size_t> end(tensors.size() + 1);
    for (const Transfer& transfer : plan.transfers) {
        require(transfer.tensor < tensors.size(), "a transfer of tensor number {} of {}", transfer.tensor,
                tensors.size());
        ++end[transfer.tensor + 1];
    }
    for (std::size_t i = 1; i < end.size(); ++i) end[i] += end[i - 1];
    std::vector<ops::Checksum> sorted(transfers.size());
    for (std::size_t i = 0; i < transfers.size(); ++i) sorted[end[plan.transfers[i].tensor]++] = transfers[i];
    std::string text = std::to_string(version) + "\n";
    text.reserve(text.size() + tensors.size() * 128);
    for (std::size_t i = 0, begin = 0; i < tensors.size(); begin = end[i++]) {
        text += tensors[i].name;
        text += '\t';
        text += dtype_name(tensors[i].dtype);
        text += '\t';
        text += to_string(tensors[i].shape);
        text += '\t';
        text += ops::to_hex(ops::combine(std::span(sorted).subspan(begin, end[i] - begin)));
        text += '\n';
    }
    return ops::checksum({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace tandem::engine
