#include "common/sharding/holding.h"

#include "common/sharding/tensor_cut.h"

namespace tandem {

Holding holding_of(const DeviceMesh& mesh, const std::string& shards, const model::ParameterSpec& spec) {
    std::vector<std::string> axes;
    Placements placements;
    const Placement sharded = spec.shape.empty() ? Replicate() : Shard(0);
    if (!mesh.has_axis("tp")) {
        for (const std::string& axis : mesh.names())
            placements.push_back(axis == shards ? sharded : Replicate());
        return {mesh, placements};
    }
    const TensorCut cut = tensor_cut(spec, mesh.size("tp"));
    for (const std::string& axis : mesh.names()) {
        if (axis == "tp") continue;
        if (axis == shards) {
            axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
            placements.insert(placements.end(), cut.placements.begin(), cut.placements.end());
        }
        axes.push_back(axis);
        placements.push_back(axis == shards ? sharded : Replicate());
    }
    const DeviceMesh cut_mesh = cut.axes.size() == 1 ? mesh : mesh.unflatten("tp", cut.sizes, cut.axes);
    return {cut_mesh.permute(axes), placements};
}

Holding shared_holding(const DeviceMesh& both, const Holding& of_stage) {
    Placements placements(static_cast<std::size_t>(both.ndim()), Replicate());
    placements.insert(placements.end(), of_stage.placements.begin(), of_stage.placements.end());
    return {of_stage.mesh.behind(both), placements};
}

}  // namespace tandem
