#include "sync/push/directory_source.h"

#include <numeric>
#include <utility>

#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/model/check_weights.h"
#include "common/model/model_config.h"

namespace tandem::sync {

DirectoryWeights::DirectoryWeights(const std::string& directory,
                                   const std::function<bool(const std::string& name)>& only)
    : files_(model::Safetensors::open(directory)), architecture_(SaidArchitecture::of_directory(directory)) {
    if (const model::Architecture* known = architecture_.known())
        model::check_shapes(files_, known->config());
    const bool tied = model::ties_embeddings(directory);
    for (const std::string& name : files_.names()) {
        if (model::says_nothing_new(name, tied) || (only && !only(name))) continue;
        names_.push_back(name);
    }
    if (!names_.empty()) return;
    throw ConfigError(
        directory, only ? "--only" : "weights",
        "none of its tensors is to be pushed (a tied lm_head.weight is model.embed_tokens.weight, and "
        "rotary_emb.inv_freq follows from config.json)");
}

std::size_t DirectoryWeights::bytes() const {
    return std::accumulate(
        names_.begin(), names_.end(), std::size_t{0}, [&](std::size_t sum, const std::string& name) {
            return sum + static_cast<std::size_t>(numel(files_.shape(name))) * dtype_size(files_.dtype(name));
        });
}

DirectorySource::DirectorySource(std::shared_ptr<const DirectoryWeights> weights,
                                 std::shared_ptr<comm::Communicator> world)
    : weights_(std::move(weights)) {
    const DeviceMesh mesh = DeviceMesh::create(std::move(world), {1}, {"dp"});
    for (const std::string& name : weights_->names()) {
        const Tensor tensor = weights_->tensor(name);
        tensors_.push_back({name, DTensor::from_local(tensor, mesh, {Replicate()}, tensor.shape())});
    }
}

void DirectorySource::require_unchanged() const {
    const std::string file = weights_->changed_file();
    enforce(
        file.empty(),
        "{} was written to while it was being pushed: push it again when it is whole (a checkpoint that is "
        "written under another name, and renamed, can be pushed at any time)",
        file);
}

}  // namespace tandem::sync
