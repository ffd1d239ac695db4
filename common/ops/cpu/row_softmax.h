// One row of logits as the ops of this folder see it: its largest logit, its softmax. Log-probs of trainer and
// engine come from here, so they agree in every bit.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/tensor/tensor.h"

namespace tandem::ops::cpu {

std::span<const float> row_of(const Tensor& logits, std::int64_t row);

struct RowMax {
    float value = -std::numeric_limits<float>::infinity();  // NaNs do not count
    std::vector<float> blocks;                              // by detail::kSoftmaxBlock logits
};

RowMax row_max(std::span<const float> logits);

// Weights are e^z, z = (logit - max) / temperature. A NaN or +inf makes the sums NaN.
struct RowSoftmax {
    std::span<const float> logits;
    float max, inverse_temperature;
    std::vector<float> blocks;  // Σ e^z by block
    double sum, weighted;       // Σ e^z and Σ e^z z; 0 of no columns, or none but -inf

    float logprob(std::int32_t token) const;
    float lse() const;
    float entropy() const;
};

RowSoftmax row_softmax(std::span<const float> logits, float max, float inverse_temperature);

}  // namespace tandem::ops::cpu
