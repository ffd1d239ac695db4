// Model FLOPs utilisation of a training step: the model's FLOPs against the rate that one matrix product
// reaches.
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

// The product of measure_product_rate: [m, k] by [k, n], `tries` times, of which the first warms up.
struct RateProduct {
    std::int64_t m, n, k;
    int tries;
};
// Where the CPU computes, the size of a feed-forward layer (SmolLM2-135M's). On a GPU 8192 each
// way (1.1 TFLOP, beside which a launch is negligible); half, and half again, where that takes more than an
// eighth of the free memory.
RateProduct rate_product(Device device, DType dtype);

// FLOP/s of all ranks together, each on a product of its own (rate_product) of random numbers at the same
// time, its best. A fraction of a second; collective.
double measure_product_rate(comm::Communicator& world, Device device, DType dtype);

}  // namespace tandem::trainer
