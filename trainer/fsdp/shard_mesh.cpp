#include "trainer/fsdp/shard_mesh.h"

#include <algorithm>

#include "common/comm/launch.h"
#include "common/error.h"

namespace tandem::trainer {
namespace {

using Names = std::vector<std::string>;

std::string text(const Names& names, const std::string& between) {
    std::string result;
    for (const std::string& name : names) result += (result.empty() ? "" : between) + name;
    return result;
}

// The axes as one: (dp_shard, cp) is dp_shard_cp. A dp that was cut in two is dp again.
DeviceMesh joined(const DeviceMesh& mesh, const Names& axes) {
    if (axes.size() == 1) return mesh.slice(axes);
    static const std::string kCut = "dp_replicate_dp_shard";
    std::string name = text(axes, "_");
    if (name.starts_with(kCut)) name.replace(0, kCut.size(), "dp");
    return mesh.flatten(axes, name);
}

std::shared_ptr<comm::Communicator> own_group(const DeviceMesh& axis, const std::string& name) {
    if (axis.size() == 1) return comm::solo();
    comm::Communicator& shared = axis.communicator(0);
    return shared.split(shared.global_ranks(), name);
}

const DeviceMesh& checked(const DeviceMesh& mesh) {
    enforce(mesh.names() == Names{"dp", "cp"} || mesh.names() == Names{"dp_replicate", "dp_shard", "cp"},
            "a policy's mesh has the axes (dp, cp) or (dp_replicate, dp_shard, cp), not ({})",
            text(mesh.names(), ", "));
    return mesh;
}

}  // namespace

ShardMesh::ShardMesh(const DeviceMesh& data, const Names& shard_axes) : mesh(checked(data)) {
    const Names& names = data.names();
    const auto first = std::search(names.begin(), names.end(), shard_axes.begin(), shard_axes.end());
    enforce(!shard_axes.empty() && first != names.end(),
            "shard_axes ({}) are not neighbours, in this order, among the mesh axes ({})",
            text(shard_axes, ", "), text(names, ", "));
    const auto last = first + static_cast<std::ptrdiff_t>(shard_axes.size());
    Names others(names.begin(), first);
    others.insert(others.end(), last, names.end());

    const DeviceMesh sharded = joined(data, shard_axes);
    world = own_group(joined(data, names), "trainer.world");
    context = own_group(data.slice({"cp"}), "trainer.context");
    shards = own_group(sharded, "trainer.fsdp");
    replicas = others.empty() ? comm::solo() : own_group(joined(data, others), "trainer.replicas");

    Names axes(names.begin(), first);
    placements.assign(axes.size(), Replicate());
    axes.push_back(sharded.names()[0]);
    placements.push_back(Shard(0));
    axes.insert(axes.end(), last, names.end());
    placements.resize(axes.size(), Replicate());
    mesh = axes.size() == 1 ? sharded : data.slice(axes);

    for (const std::string& axis : names) {
        if (axis == "cp") continue;
        batch_ranks *= data.size(axis);
        batch_rank = batch_rank * data.size(axis) + data.coordinate(axis);
    }
}

}  // namespace tandem::trainer
