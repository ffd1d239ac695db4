// Synthetic weights, sharded like a trainer's, that change from step to step.
#pragma once

#include <vector>

#include "engine_adapter/engine.h"
#include "sync/session/session.h"
#include "sync/weight_source.h"

namespace tandem::sync {

class SyntheticSource final : public WeightSource {
  public:
    // Every tensor Shard(0) over the mesh's first axis; over the second axis, where there is one, replicated,
    // or sharded too with shard_all. In memory that engines can map.
    SyntheticSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& mesh, DType dtype,
                    bool shard_all);
    // Changes about this part of all elements, at random positions, equal on replicas.
    void change(double part);
    // Moves the weights to where the session would have them written (alias), as a trainer does that writes
    // there at once.
    void move_into(Session& session);

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    std::vector<NamedTensor> tensors_;
    std::vector<std::uint64_t> seeds_;  // [tensor]: equal on all ranks that hold the same rows
    std::uint64_t step_ = 0;
};

}  // namespace tandem::sync
