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

// The axes along which ranks have tokens of their own.
Names data_axes(const DeviceMesh& mesh) {
    Names data = mesh.names();
    if (data.front() == "pp") data.erase(data.begin());
    if (data.back() == "tp") data.pop_back();
    enforce(data == Names{"dp", "cp"} || data == Names{"dp_replicate", "dp_shard", "cp"},
            "a policy's mesh has the axes (dp, cp) or (dp_replicate, dp_shard, cp), pp before and tp behind "
            "them, "
            "not ({})",
            text(mesh.names(), ", "));
    return data;
}

}  // namespace

ShardMesh::ShardMesh(const DeviceMesh& of, const Names& shard_axes) : whole(of), mesh(of) {
    const Names data = data_axes(whole);
    const bool cut = whole.has_axis("tp") && whole.size("tp") > 1;
    const bool staged = whole.has_axis("pp") && whole.size("pp") > 1;
    const auto first = std::search(data.begin(), data.end(), shard_axes.begin(), shard_axes.end());
    enforce(!shard_axes.empty() && first != data.end(),
            "shard_axes ({}) are not neighbours, in this order, among the mesh axes ({})",
            text(shard_axes, ", "), text(data, ", "));
    const auto last = first + static_cast<std::ptrdiff_t>(shard_axes.size());
    Names others(data.begin(), first);
    others.insert(others.end(), last, data.end());
    const auto with_tensor = [&](Names axes) {
        if (cut) axes.emplace_back("tp");
        return axes;
    };
    const auto with_stages = [&](Names axes) {
        if (staged) axes.insert(axes.begin(), "pp");
        return axes;
    };

    const DeviceMesh sharded = joined(whole, shard_axes);
    shard_axis = sharded.names()[0];
    world = own_group(joined(whole, with_stages(with_tensor(data))), "trainer.world");
    stage = staged ? own_group(joined(whole, with_tensor(data)), "trainer.stage") : world;
    loss = cut ? own_group(joined(whole, with_stages(data)), "trainer.loss") : world;
    context = own_group(whole.slice({"cp"}), "trainer.context");
    tensor = cut ? own_group(whole.slice({"tp"}), "trainer.tensor") : comm::solo();
    pipeline = staged ? own_group(whole.slice({"pp"}), "trainer.pipeline") : comm::solo();
    shards = own_group(sharded, "trainer.fsdp");
    distinct = cut || staged
                   ? own_group(joined(whole, with_stages(with_tensor(shard_axes))), "trainer.distinct")
                   : shards;
    replicas = others.empty() ? comm::solo() : own_group(joined(whole, others), "trainer.replicas");

    Names axes(data.begin(), first);
    axes.push_back(shard_axis);
    axes.insert(axes.end(), last, data.end());
    axes = with_tensor(axes);
    mesh = axes.size() == 1 ? sharded : whole.slice(axes);

    for (const std::string& axis : data) {
        if (axis == "cp") continue;
        batch_ranks *= whole.size(axis);
        batch_rank = batch_rank * whole.size(axis) + whole.coordinate(axis);
    }
}

ShardMesh::Shared ShardMesh::shared_by_first_and(int other, const model::ParameterSpec& spec) const {
    const DeviceMesh both = whole.first_and(other, "pp_ends");
    return {shared_holding(both, holding_of(spec)), own_group(both, "trainer.pipeline.table")};
}

std::shared_ptr<comm::Communicator> ShardMesh::copies_of(int heads) const {
    const DeviceMesh cut = mesh.unflatten("tp", {heads, mesh.size("tp") / heads}, {"tp_heads", "tp_copies"});
    return own_group(cut.slice({"tp_copies"}), "trainer.tensor.copies");
}

}  // namespace tandem::trainer
