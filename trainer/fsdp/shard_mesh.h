// Which ranks do what together: the groups that the training core talks over, and the layout of its shards.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/dtensor/placement.h"
#include "common/mesh/device_mesh.h"

namespace tandem::trainer {

// Every group is split off for this purpose alone, so that nobody else's collectives get between ours. Axes
// of size 1 give comm::solo().
struct ShardMesh {
    // `mesh` has the axes dp and cp. over_cp: shards over both (HSDP's replicas are then none); else over dp,
    // and the ranks of the cp axis hold the same shards. Collective.
    ShardMesh(const DeviceMesh& mesh, bool over_cp);

    DeviceMesh mesh;                               // of the sharded DTensors: ("dp_cp") or ("dp", "cp")
    Placements placements;                         // [S(0)] or [S(0), R]
    std::shared_ptr<comm::Communicator> world;     // statistics
    std::shared_ptr<comm::Communicator> shards;    // parameters are sharded over
    std::shared_ptr<comm::Communicator> replicas;  // gradients are averaged over
    std::shared_ptr<comm::Communicator> context;   // the cp axis
};

}  // namespace tandem::trainer
