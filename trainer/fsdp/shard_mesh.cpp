#include "trainer/fsdp/shard_mesh.h"

#include <string>

#include "common/comm/launch.h"

namespace tandem::trainer {
namespace {

std::shared_ptr<comm::Communicator> own_group(const DeviceMesh& mesh, const std::string& axis,
                                              const std::string& name) {
    if (mesh.size(axis) == 1) return comm::solo();
    comm::Communicator& shared = mesh.communicator(axis);
    return shared.split(shared.global_ranks(), name);
}

}  // namespace

ShardMesh::ShardMesh(const DeviceMesh& dp_and_cp, bool over_cp) : mesh(dp_and_cp.slice({"dp", "cp"})) {
    const DeviceMesh flat = dp_and_cp.flatten({"dp", "cp"}, "dp_cp");
    world = own_group(flat, "dp_cp", "trainer.world");
    context = own_group(dp_and_cp, "cp", "trainer.context");
    if (over_cp) {
        mesh = flat;
        placements = {Shard(0)};
        shards = own_group(flat, "dp_cp", "trainer.fsdp");
        replicas = comm::solo();
    } else {
        placements = {Shard(0), Replicate()};
        shards = own_group(dp_and_cp, "dp", "trainer.fsdp");
        replicas = own_group(dp_and_cp, "cp", "trainer.replicas");
    }
}

}  // namespace tandem::trainer
