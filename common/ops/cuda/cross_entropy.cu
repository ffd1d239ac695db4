// Log-probabilities of tokens: a block reads a row of logits once, with the online softmax of
// common/ops/shared/softmax.h; the gradient is written over the logits.
#include <cmath>

#include "common/ops/cross_entropy.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/logits_walk.cuh"
#include "common/ops/cuda/logprob_rows.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/softmax.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kLossThreads = 512;
constexpr int kGradientThreads = 256;
constexpr std::int64_t kGradientTile = kGradientThreads * kVector * 4;

__device__ shared::SoftmaxSums merge_lanes(shared::SoftmaxSums sums, float inverse_temperature) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        shared::SoftmaxSums other;
        other.max = __shfl_xor_sync(kAllLanes, sums.max, step);
        other.sum = __shfl_xor_sync(kAllLanes, sums.sum, step);
        other.weighted = __shfl_xor_sync(kAllLanes, sums.weighted, step);
        sums = shared::merge(sums, other, inverse_temperature);
    }
    return sums;
}

// Grid: results, a block each.
template <bool kBfloat16>
__global__ void __launch_bounds__(kLossThreads)
    logprob_kernel(Elements logits, std::int64_t vocab, LogprobRows rows) {
    __shared__ shared::SoftmaxSums room[kLossThreads / 32];
    const std::int64_t row = blockIdx.x;
    const std::int64_t base = (rows.rows == nullptr ? row : rows.rows[row]) * vocab;
    const float inverse_temperature =
        rows.inverse_temperatures == nullptr ? rows.inverse_temperature : rows.inverse_temperatures[row];
    shared::SoftmaxSums sums;
    walk_logits<kLossThreads, kBfloat16>(logits, base, static_cast<int>(vocab),
                                         [&]<int kCount>(const float(&x)[kCount], const auto&) {
                                             float max = sums.max;
#pragma unroll
                                             for (int i = 0; i < kCount; ++i) max = x[i] > max ? x[i] : max;
                                             if (max > sums.max)
                                                 shared::raise(sums, max, inverse_temperature);
#pragma unroll
                                             for (int i = 0; i < kCount; ++i)
                                                 shared::take(sums, x[i], inverse_temperature);
                                         });
    sums = merge_lanes(sums, inverse_temperature);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sums;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < kLossThreads / 32; ++i) sums = shared::merge(sums, room[i], inverse_temperature);
    const std::int32_t target = rows.targets[row];
    if (sums.sum == 0.0f) {  // no column, or none but -inf
        rows.lse[row] = -INFINITY;
        rows.logprobs[row] = target < 0 ? 0.0f : -INFINITY;
        rows.entropies[row] = 0.0f;
        return;
    }
    const float log_sum = logf(sums.sum);
    rows.lse[row] = sums.max * inverse_temperature + log_sum;
    rows.logprobs[row] =
        target < 0 ? 0.0f : (load1(logits, base + target) - sums.max) * inverse_temperature - log_sum;
    rows.entropies[row] = log_sum - sums.weighted / sums.sum;
}

struct Gradient {
    const float* lse;
    const float* dlogprobs;
    const float* entropies;   // null: of no row
    const float* dentropies;  // null: of no row
};

// The inputs of a row's gradient.
struct RowGradient {
    std::int64_t target;
    float inverse_temperature, lse, factor, spread, entropy;

    __device__ bool none() const { return factor == 0.0f && spread == 0.0f; }
    __device__ float of(float x, std::int64_t at) const {
        const float g = shared::logit_gradient(x, inverse_temperature, lse, factor, spread, entropy);
        return at == target ? g + factor : g;
    }
};

// Grid: (row, tile of the vocabulary).
__global__ void __launch_bounds__(kGradientThreads)
    gradient_kernel(Elements logits, const std::int32_t* targets, float inverse_temperature,
                    std::int64_t vocab, std::uint32_t tiles, Gradient gradient) {
    const std::int64_t row = blockIdx.x / tiles;
    const std::int64_t tile = blockIdx.x % tiles * kGradientTile;
    const std::int64_t base = row * vocab;
    const std::int32_t target = targets[row];
    const bool wanted = target != -1;
    const float factor = wanted ? gradient.dlogprobs[row] * inverse_temperature : 0.0f;
    const bool spreads = wanted && gradient.dentropies != nullptr;
    const RowGradient of_row{target,
                             inverse_temperature,
                             gradient.lse[row],
                             factor,
                             spreads ? gradient.dentropies[row] * inverse_temperature : 0.0f,
                             spreads ? gradient.entropies[row] : 0.0f};
    const bool none = of_row.none();
    if (logits.vector &&
        !logits.is_bfloat16) {  // all loads first: four of a thread, side by side in the block
        constexpr int kAccesses = static_cast<int>(kGradientTile / (kGradientThreads * 4));
        constexpr int kAtOnce = 4;
#pragma unroll
        for (int part = 0; part < kAccesses; part += kAtOnce) {
            Words words[kAtOnce];
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                const std::int64_t at = tile + ((part + n) * kGradientThreads + threadIdx.x) * 4;
                words[n] = Words{};
                if (!none && at < vocab) words[n] = load16(logits.data + 4 * (base + at));
            }
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                const std::int64_t at = tile + ((part + n) * kGradientThreads + threadIdx.x) * 4;
                if (at >= vocab) return;
                if (!none) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        words[n].w[i] = shared::bits_of(of_row.of(shared::float_of(words[n].w[i]), at + i));
                }
                store16(logits.data + 4 * (base + at), words[n]);
            }
        }
        return;
    }
#pragma unroll 1
    for (std::int64_t n = 0; n < kGradientTile; n += kGradientThreads * kVector) {
        const std::int64_t at = tile + n + threadIdx.x * kVector;
        if (at >= vocab) return;
        float x[8] = {};
        if (!none) {
            load8(logits, base + at, vocab - at, x);
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = of_row.of(x[i], at + i);
        }
        store8(logits, base + at, vocab - at, x);
    }
}

}  // namespace

void logprob_rows(Work& work, const Tensor& logits, const LogprobRows& rows, std::int64_t count) {
    const std::int64_t vocab = logits.dim(1);
    const Elements from = elements(logits, vocab);
    work.launch(from.is_bfloat16 ? logprob_kernel<true> : logprob_kernel<false>, count, kLossThreads, 0, from,
                vocab, rows);
}

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    Work work(stream, "token_logprobs");
    const std::int64_t rows = logits.dim(0);
    float* const results = work.scratch<float>(3 * rows);
    logprob_rows(work, logits,
                 {.targets = work.upload(targets),
                  .inverse_temperature = 1.0f / temperature,
                  .logprobs = results,
                  .lse = results + rows,
                  .entropies = results + 2 * rows},
                 rows);
    work.download(results, static_cast<std::size_t>(3 * rows) * sizeof(float),
                  [logprobs, lse, entropies](const std::byte* all) {
                      for (const std::span<float> to : {logprobs, lse, entropies}) {
                          if (!to.empty()) std::memcpy(to.data(), all, to.size_bytes());
                          all += to.size_bytes();
                      }
                  });
}

void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    Work work(stream, "token_logprobs_backward");
    const std::int64_t vocab = logits.dim(1);
    const std::int64_t tiles = ceil_div(vocab, kGradientTile);
    const std::int32_t* const wanted = work.upload(targets);
    const std::size_t count = targets.size();
    std::vector<float> values(lse.begin(), lse.end());  // one upload: each takes microseconds of the stream
    values.insert(values.end(), dlogprobs.begin(), dlogprobs.end());
    if (!dentropies.empty()) {
        const std::span<const float> of_rows = entropies.first(count);
        values.insert(values.end(), of_rows.begin(), of_rows.end());
        values.insert(values.end(), dentropies.begin(), dentropies.end());
    }
    const float* const there = work.upload(values);
    const Gradient gradient{there, there + count, dentropies.empty() ? nullptr : there + 2 * count,
                            dentropies.empty() ? nullptr : there + 3 * count};
    work.launch(gradient_kernel, logits.dim(0) * tiles, kGradientThreads, 0, elements(logits, vocab), wanted,
                1.0f / temperature, vocab, static_cast<std::uint32_t>(tiles), gradient);
}

}  // namespace tandem::ops::TANDEM_KERNELS
