// The inner loops over a row of logits, compiled once per instruction set. With z = (x - max) / temperature a
// token's weight is e^z: 0 for a logit of -inf and far below the largest; NaN of a NaN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

// Logits a block: sums are fp32 within one, the caller's across them.
inline constexpr std::int64_t kSoftmaxBlock = 1024;

struct SoftmaxKernels {
    // blocks[b] = the largest logit of block b that is not NaN, or -inf.
    void (*block_max)(const float* x, std::int64_t count, float* blocks);
    // sums[b] = Σ e^z and weighted[b] = Σ e^z z of block b. No logit may exceed max.
    void (*block_sums)(const float* x, std::int64_t count, float max, float inverse_temperature, float* sums,
                       float* weighted);
    // weights[i] = e^z, as block_sums adds them.
    void (*weights)(const float* x, std::int64_t count, float max, float inverse_temperature, float* weights);
    // Tokens whose weight is in [low, high), in order; returns how many. `tokens` has room for `count`.
    std::size_t (*tokens_between)(const float* weights, std::int64_t count, float low, float high,
                                  std::int32_t* tokens);
    // See token_logprobs_backward, without its onehot: x = -p factor, with p = e^(x / temperature - lse).
    void (*gradient)(float* x, std::int64_t count, float inverse_temperature, float lse, float factor);
    // x = -p (factor + spread (log p + entropy))
    void (*entropy_gradient)(float* x, std::int64_t count, float inverse_temperature, float lse, float factor,
                             float spread, float entropy);
    const char* name;
};

// The fastest that this machine runs.
const SoftmaxKernels& softmax_kernels();

extern const SoftmaxKernels kSoftmaxBaseline;
extern const SoftmaxKernels kSoftmaxAvx2;
extern const SoftmaxKernels kSoftmaxAvx512;

}  // namespace tandem::ops::detail
