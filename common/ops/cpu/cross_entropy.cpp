// Log-probabilities of tokens on the CPU: one row of logits at a time, never across rows.
#include "common/ops/cross_entropy.h"

#include <algorithm>
#include <vector>

#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/row_softmax.h"
#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::cpu {

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    stream.enqueue([=, wanted = std::vector<std::int32_t>(targets.begin(), targets.end())] {
        const float inverse = 1.0f / temperature;
        detail::parallel_for(logits.dim(0), [&](std::int64_t index) {
            const auto row = static_cast<std::size_t>(index);
            const std::span<const float> x = row_of(logits, index);
            const RowSoftmax softmax = row_softmax(x, row_max(x).value, inverse);
            lse[row] = softmax.lse();
            logprobs[row] = wanted[row] < 0 ? 0.0f : softmax.logprob(wanted[row]);
            if (!entropies.empty()) entropies[row] = softmax.entropy();
        });
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
        const detail::SoftmaxKernels& kernels = detail::softmax_kernels();
        detail::parallel_for(logits.dim(0), [&](std::int64_t index) {
            const auto row = static_cast<std::size_t>(index);
            float* x = logits.data<float>() + index * vocab;
            const bool none = wanted[row] == -1;
            const float factor = none ? 0.0f : gradient[row] * inverse;
            const float spread = none || dentropy.empty() ? 0.0f : dentropy[row] * inverse;
            if (factor == 0.0f && spread == 0.0f) {
                std::fill_n(x, vocab, 0.0f);
                return;
            }
            if (spread != 0.0f) {
                kernels.entropy_gradient(x, vocab, inverse, logsum[row], factor, spread, entropy[row]);
            } else {
                kernels.gradient(x, vocab, inverse, logsum[row], factor);
            }
            if (wanted[row] >= 0) x[wanted[row]] += factor;
        });
    });
}

}  // namespace tandem::ops::cpu
