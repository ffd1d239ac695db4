// The groups of ranks that the training core communicates over, and where parameters lie on its mesh.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/mesh/device_mesh.h"
#include "common/sharding/holding.h"

namespace tandem::trainer {

// Every group is split off for this purpose alone, so that no other collectives come between ours. Axes
// of size 1 give comm::solo().
struct ShardMesh {
    // `mesh` is (dp, cp) or (dp_replicate, dp_shard, cp), with or without pp before and tp behind, over all ranks of its root.
    // shard_axes: neighbours among dp and cp; ranks along the others of these hold the same shards. Throws InvalidArgument.
    // Collective.
    ShardMesh(const DeviceMesh& mesh, const std::vector<std::string>& shard_axes);

    // Of a parameter on these ranks.
    Holding holding_of(const model::ParameterSpec& spec) const {
        return tandem::holding_of(mesh, shard_axis, spec);
    }
    // The ranks that hold the same `heads` heads of keys and values, of which there are fewer than ranks of tp. Collective.
    std::shared_ptr<comm::Communicator> copies_of(int heads) const;

    // What rank 0 of the pipeline and rank `other` both have, on those ranks of it: a table that two stages share. Collective
    // over those two.
    struct Shared {
        Holding holding;
        std::shared_ptr<comm::Communicator> ranks;
    };
    Shared shared_by_first_and(int other, const model::ParameterSpec& spec) const;

    DeviceMesh whole;
    DeviceMesh mesh;  // of this stage, shard_axes as one, between the others: (dp_replicate, dp_shard_cp, tp)
    std::string shard_axis;                      // of that mesh
    std::shared_ptr<comm::Communicator> world;   // all ranks
    std::shared_ptr<comm::Communicator> stage;   // that have the same layers
    std::shared_ptr<comm::Communicator> loss;    // all but the tp axis: statistics, which the last stage has
    std::shared_ptr<comm::Communicator> shards;  // parameters are sharded over
    std::shared_ptr<comm::Communicator> replicas;  // gradients are summed over, too
    std::shared_ptr<comm::Communicator>
        distinct;  // that hold the whole model between them: stages, shards and tp
    std::shared_ptr<comm::Communicator> context;   // the cp axis
    std::shared_ptr<comm::Communicator> tensor;    // the tp axis
    std::shared_ptr<comm::Communicator> pipeline;  // the pp axis
    int batch_ranks = 1;                           // that take samples of their own: dp
    int batch_rank = 0;
};

}  // namespace tandem::trainer
