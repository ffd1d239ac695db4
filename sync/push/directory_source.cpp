#include "sync/push/directory_source.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/model/check_weights.h"
#include "common/model/model_config.h"

namespace tandem::sync {

DirectorySource::DirectorySource(const std::string& directory, std::shared_ptr<comm::Communicator> world,
                                 const std::function<bool(const std::string& name)>& only)
    : files_(model::Safetensors::open(directory)), architecture_(SaidArchitecture::of_directory(directory)) {
    if (const model::Architecture* known = architecture_.known())
        model::check_shapes(files_, known->config());
    const DeviceMesh mesh = DeviceMesh::create(std::move(world), {1}, {"dp"});
    const bool tied = model::ties_embeddings(directory);
    for (const std::string& name : files_.names()) {
        if ((tied && name == "lm_head.weight") || (only && !only(name))) continue;
        const Tensor tensor = files_.tensor(name);
        tensors_.push_back({name, DTensor::from_local(tensor, mesh, {Replicate()}, tensor.shape())});
    }
    if (!tensors_.empty()) return;
    throw ConfigError(
        directory, only ? "--only" : "weights",
        "none of its tensors is to be pushed (a tied lm_head.weight is model.embed_tokens.weight)");
}

void DirectorySource::require_unchanged() const {
    const std::string file = files_.changed_file();
    enforce(
        file.empty(),
        "{} was written to while it was being pushed: push it again when it is whole (a checkpoint that is "
        "written under another name, and renamed, can be pushed at any time)",
        file);
}

std::size_t DirectorySource::bytes() const {
    std::size_t bytes = 0;
    for (const NamedTensor& tensor : tensors_) bytes += tensor.tensor.local().bytes();
    return bytes;
}

}  // namespace tandem::sync
