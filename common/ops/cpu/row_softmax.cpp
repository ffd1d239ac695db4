#include "common/ops/cpu/row_softmax.h"

#include <algorithm>
#include <cmath>

#include "common/ops/cpu/softmax_kernels.h"
#include "common/ops/shared/softmax.h"

namespace tandem::ops::cpu {
namespace {

std::size_t block_count(std::span<const float> logits) {
    constexpr auto kBlock = static_cast<std::size_t>(detail::kSoftmaxBlock);
    return (logits.size() + kBlock - 1) / kBlock;
}

}  // namespace

std::span<const float> row_of(const Tensor& logits, std::int64_t row) {
    return {logits.data<float>() + row * logits.dim(1), static_cast<std::size_t>(logits.dim(1))};
}

RowMax row_max(std::span<const float> logits) {
    RowMax result;
    result.blocks.resize(block_count(logits));
    detail::softmax_kernels().block_max(logits.data(), static_cast<std::int64_t>(logits.size()),
                                        result.blocks.data());
    for (const float block : result.blocks) result.value = std::max(result.value, block);
    return result;
}

RowSoftmax row_softmax(std::span<const float> logits, float max, float inverse_temperature) {
    RowSoftmax row{.logits = logits,
                   .max = std::max(max, shared::kLowest),
                   .inverse_temperature = inverse_temperature,
                   .blocks = std::vector<float>(block_count(logits)),
                   .sum = 0.0,
                   .weighted = 0.0};
    std::vector<float> weighted(row.blocks.size());
    detail::softmax_kernels().block_sums(logits.data(), static_cast<std::int64_t>(logits.size()), row.max,
                                         inverse_temperature, row.blocks.data(), weighted.data());
    for (const float block : row.blocks) row.sum += static_cast<double>(block);
    for (const float block : weighted) row.weighted += static_cast<double>(block);
    return row;
}

float RowSoftmax::logprob(std::int32_t token) const {
    if (sum == 0.0) return -std::numeric_limits<float>::infinity();
    const float z = (logits[static_cast<std::size_t>(token)] - max) * inverse_temperature;
    return static_cast<float>(static_cast<double>(z) - std::log(sum));
}

float RowSoftmax::lse() const {
    return static_cast<float>(static_cast<double>(max) * static_cast<double>(inverse_temperature) +
                              std::log(sum));
}

float RowSoftmax::entropy() const {
    return sum == 0.0 ? 0.0f : static_cast<float>(std::log(sum) - weighted / sum);
}

}  // namespace tandem::ops::cpu
