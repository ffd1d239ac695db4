#include "sync/push/directory_source.h"

#include <utility>

#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/model/model_config.h"

namespace tandem::sync {

DirectorySource::DirectorySource(const std::string& directory, std::shared_ptr<comm::Communicator> world,
                                 const std::function<bool(const std::string& name)>& only)
    : files_(model::Safetensors::open(directory)) {
    const DeviceMesh mesh = DeviceMesh::create(std::move(world), {1}, {"dp"});
    const bool tied = model::ties_embeddings(directory);
    for (const std::string& name : files_.names()) {
        if ((tied && name == "lm_head.weight") || (only && !only(name))) continue;
        const Tensor tensor = files_.tensor(name);
        tensors_.push_back({name, DTensor::from_local(tensor, mesh, {Replicate()}, tensor.shape())});
    }
    if (tensors_.empty()) throw ConfigError(directory, "--only", "none of its tensors is to be pushed");
}

std::size_t DirectorySource::bytes() const {
    std::size_t bytes = 0;
    for (const NamedTensor& tensor : tensors_) bytes += tensor.tensor.local().bytes();
    return bytes;
}

}  // namespace tandem::sync
