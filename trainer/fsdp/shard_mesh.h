// The groups of ranks that the training core communicates over, and the layout of its shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/dtensor/placement.h"
#include "common/mesh/device_mesh.h"

namespace tandem::trainer {

// Every group is split off for this purpose alone, so that no other collectives come between ours. Axes
// of size 1 give comm::solo().
struct ShardMesh {
    // `mesh` is (dp, cp) or (dp_replicate, dp_shard, cp), over all ranks of its root. shard_axes: neighbours
    // among its axes; ranks along the others hold the same shards. Throws InvalidArgument. Collective.
    ShardMesh(const DeviceMesh& mesh, const std::vector<std::string>& shard_axes);

    DeviceMesh mesh;        // of the sharded DTensors: shard_axes as one, between the others: (dp_replicate,
                            // dp_shard_cp)
    Placements placements;  // S(0) on that one, R on the others
    std::shared_ptr<comm::Communicator> world;     // statistics
    std::shared_ptr<comm::Communicator> shards;    // parameters are sharded over
    std::shared_ptr<comm::Communicator> replicas;  // gradients are summed over, too
    std::shared_ptr<comm::Communicator> context;   // the cp axis
    int batch_ranks = 1;                           // that take samples of their own: all but the cp axis
    int batch_rank = 0;
};

}  // namespace tandem::trainer
