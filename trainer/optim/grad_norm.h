// The global norm of sharded gradients, and what clipping makes of it.
#pragma once

#include <span>

#include "common/comm/communicator.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

// Euclidean norm over the shards of all ranks of `shards`. Waits for the stream. Summed in fp64, in order
// within a shard and then in rank order, so it is the same number on every rank and in every run. `shards` is
// the group that the gradients are sharded over, never one with replicas in it: those would be counted twice. local_grads:
// this rank's, in pieces. Blocking, collective.
double global_norm(Stream& stream, std::span<const Tensor> local_grads, comm::Communicator& shards);

// PyTorch's clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0.
float clip_scale(double norm, float max_norm);

}  // namespace tandem::trainer
