// Synthetic weights, sharded like a trainer's, that change from step to step.
#pragma once

#include <optional>
#include <vector>

#include "common/device/export.h"
#include "engine_adapter/engine.h"
#include "sync/bench/trainer_mesh.h"
#include "sync/session/session.h"
#include "sync/weight_source.h"

namespace tandem::sync {

class SyntheticSource final : public WeightSource {
  public:
    // In memory that engines can map; on a GPU in one export arena, with the same values on the host.
    // `tensors`: the model's; the source has those that this rank of `all` has.
    SyntheticSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& all,
                    const Holdings& held, DType dtype, Device device = {});
    // Changes about this part of all elements, at random positions, equal on replicas.
    void change(double part);
    // Moves the weights to where the session would have them written (alias), as a trainer does that writes
    // there at once.
    void move_into(Session& session);

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    // Calls work(tensor, begin, end, seed) for blocks of all tensors' elements, by this rank's share of the
    // machine's cores. The seed depends on the block alone: values are the same however many threads work.
    template <typename Work>
    void each_block(const Work& work);
    void put_on_gpu();
    void upload();

    Device device_;
    std::size_t threads_;
    std::vector<Tensor> host_;  // [tensor]: where values are made; on the CPU the weights themselves
    ExportArena arena_;
    std::optional<Stream> stream_;  // of the GPU
    std::vector<NamedTensor> tensors_;
    std::vector<std::uint64_t> seeds_;  // [tensor]: equal on all ranks that hold the same rows
    std::uint64_t step_ = 0;
};

}  // namespace tandem::sync
