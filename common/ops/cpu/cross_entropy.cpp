// Log-probabilities of tokens on the CPU: one row of logits at a time, never across rows.
#include "common/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/ops/cpu/simd.h"
#include "common/ops/cpu/token_logprob.h"
#include "common/ops/shared/softmax.h"

namespace tandem::ops::cpu {
namespace {

using detail::kLanes;

TANDEM_CLONES float max_loop(const float* x, std::int64_t count) {
    float lanes[kLanes];
    for (int l = 0; l < kLanes; ++l) lanes[l] = shared::kLowest;
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    for (int l = 0; i + l < count; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    float best = lanes[0];
    for (int l = 1; l < kLanes; ++l) best = lanes[l] > best ? lanes[l] : best;
    return best;
}

// sums[0] = sum exp((x - max) / T), sums[1] = sum exp(...) * (x - max) / T
TANDEM_CLONES void exp_sum_loop(const float* x, float max, float inverse_temperature, std::int64_t count,
                                float* sums) {
    float total[kLanes] = {};
    float weighted[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) {
            const float z = (x[i + l] - max) * inverse_temperature;
            const float e = detail::fast_exp(z);
            total[l] += e;
            weighted[l] += e > 0.0f ? e * z : 0.0f;  // a logit of -inf has no weight
        }
    }
    for (int l = 0; i + l < count; ++l) {
        const float z = (x[i + l] - max) * inverse_temperature;
        const float e = detail::fast_exp(z);
        total[l] += e;
        weighted[l] += e > 0.0f ? e * z : 0.0f;
    }
    sums[0] = detail::sum_lanes(total);
    sums[1] = detail::sum_lanes(weighted);
}

TANDEM_CLONES void backward_loop(float* x, float inverse_temperature, float lse, float factor,
                                 std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        x[i] = -factor * detail::fast_exp(x[i] * inverse_temperature - lse);
}

// Like backward_loop, plus the gradient of the row's entropy times dentropy.
TANDEM_CLONES void entropy_backward_loop(float* x, float inverse_temperature, float lse, float factor,
                                         float dentropy, float entropy, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float logp = x[i] * inverse_temperature - lse;
        const float p = detail::fast_exp(logp);
        // A logit of -inf has no weight.
        x[i] = p > 0.0f ? -p * (factor + dentropy * (logp + entropy)) : 0.0f;
    }
}

}  // namespace

TokenLogprob token_logprob(const float* x, std::int64_t vocab, std::int32_t target,
                           float inverse_temperature) {
    const float max = max_loop(x, vocab);
    float sums[2];
    exp_sum_loop(x, max, inverse_temperature, vocab, sums);
    if (sums[0] == 0.0f) {  // no column, or none but -inf
        constexpr float kNothing = -std::numeric_limits<float>::infinity();
        return {target < 0 ? 0.0f : kNothing, kNothing, 0.0f};
    }
    const float log_sum = std::log(sums[0]);
    return {target < 0 ? 0.0f : (x[target] - max) * inverse_temperature - log_sum,
            max * inverse_temperature + log_sum, log_sum - sums[1] / sums[0]};
}

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    stream.enqueue([=, wanted = std::vector<std::int32_t>(targets.begin(), targets.end())] {
        const float inverse = 1.0f / temperature;
        const std::int64_t vocab = logits.dim(1);
        for (std::size_t row = 0; row < wanted.size(); ++row) {
            const float* x = logits.data<float>() + static_cast<std::int64_t>(row) * vocab;
            const TokenLogprob found = token_logprob(x, vocab, wanted[row], inverse);
            lse[row] = found.lse;
            logprobs[row] = found.logprob;
            if (!entropies.empty()) entropies[row] = found.entropy;
        }
    });
}

void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    stream.enqueue([=, wanted = std::vector<std::int32_t>(targets.begin(), targets.end()),
                    logsum = std::vector<float>(lse.begin(), lse.end()),
                    gradient = std::vector<float>(dlogprobs.begin(), dlogprobs.end()),
                    entropy = std::vector<float>(entropies.begin(), entropies.end()),
                    dentropy = std::vector<float>(dentropies.begin(), dentropies.end())] {
        const float inverse = 1.0f / temperature;
        const std::int64_t vocab = logits.dim(1);
        for (std::size_t row = 0; row < wanted.size(); ++row) {
            float* x = logits.data<float>() + static_cast<std::int64_t>(row) * vocab;
            const bool none = wanted[row] == -1;
            const float factor = none ? 0.0f : gradient[row] * inverse;
            const float spread = none || dentropy.empty() ? 0.0f : dentropy[row] * inverse;
            if (factor == 0.0f && spread == 0.0f) {
                std::fill_n(x, vocab, 0.0f);
                continue;
            }
            if (spread != 0.0f) {
                entropy_backward_loop(x, inverse, logsum[row], factor, spread, entropy[row], vocab);
            } else {
                backward_loop(x, inverse, logsum[row], factor, vocab);
            }
            if (wanted[row] >= 0) x[wanted[row]] += factor;
        }
    });
}

}  // namespace tandem::ops::cpu
