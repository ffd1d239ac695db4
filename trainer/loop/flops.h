// How much of the machine a training step uses: the model's FLOPs against what one matrix product reaches.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "common/model/model_config.h"

namespace tandem::trainer {

// Model FLOPs of forward and backward over sequences of these lengths: 6 a weight and token (2 forward, 4
// backward) and causal attention, 6 · layers · heads · head_dim · length² a sequence. The embedding counts
// where it is the output head too; recomputation and passes without a backward do not count.
double training_flops(const model::ModelConfig& config, std::span<const std::int64_t> lengths);

// What measure_product_rate multiplies: [m, k] by [k, n], so many times, of which the first warms up.
struct RateProduct {
    std::int64_t m, n, k;
    int tries;
};
// Where the CPU computes, of a feed-forward layer's size (SmolLM2-135M's). On a GPU 8192 each way,
// beside which a launch is nothing (1.1 TFLOP); half, and half again, where that is more than an eighth of
// what is free.
RateProduct rate_product(Device device, DType dtype);

// FLOP/s of all ranks together, each on a product of its own (rate_product) of random numbers at the same
// time, its best. A fraction of a second; collective.
double measure_product_rate(comm::Communicator& world, Device device, DType dtype);

}  // namespace tandem::trainer
