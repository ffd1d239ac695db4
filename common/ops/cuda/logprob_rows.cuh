// The log-probabilities of tokens whose ids lie on the device.
#pragma once

#include <cstdint>

#include "common/ops/cuda/work.cuh"
#include "common/tensor/tensor.h"

namespace tandem::ops::TANDEM_KERNELS {

struct LogprobRows {
    const std::int32_t* rows = nullptr;  // of the logits; null: result i is of row i
    const std::int32_t* targets = nullptr;
    const float* inverse_temperatures = nullptr;  // null: inverse_temperature
    float inverse_temperature = 1.0f;
    float* logprobs = nullptr;
    float* lse = nullptr;
    float* entropies = nullptr;
};

void logprob_rows(Work& work, const Tensor& logits, const LogprobRows& rows, std::int64_t count);

}  // namespace tandem::ops::TANDEM_KERNELS
