// How much of the machine a training step uses: the model's FLOPs against what one matrix product reaches.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/communicator.h"
#include "common/model/model_config.h"

namespace tandem::trainer {

// Model FLOPs of forward and backward over sequences of these lengths: 6 a weight and token (2 forward, 4
// backward) and causal attention, 6 · layers · heads · head_dim · length² a sequence. The embedding counts
// where it is the output head too; recomputation and passes without a backward do not count.
double training_flops(const model::ModelConfig& config, std::span<const std::int64_t> lengths);

// FLOP/s of all ranks together, each on a product of its own at the same time, of a feed-forward layer's size
// (SmolLM2-135M's). A fraction of a second; collective.
double measure_product_rate(comm::Communicator& world, Device device, DType dtype);

}  // namespace tandem::trainer
