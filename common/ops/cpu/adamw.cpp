// AdamW on the CPU: one pass over the flat shard, in blocks that the nearest cache still holds when they are looked at.
#include "common/ops/adamw.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/shared/adamw_step.h"
#include "common/ops/shared/bits.h"

namespace tandem::ops::cpu {
namespace {

using shared::AdamWFactors;

// A multiple of every vector's width and of the 8 neighbours that share a random number.
constexpr std::int64_t kBlock = 4096;

TANDEM_CLONES void adamw_loop(float* __restrict p, const float* __restrict g, float* __restrict m,
                              float* __restrict v, std::int64_t count, const AdamWFactors& factors) {
    const AdamWFactors f = factors;
    for (std::int64_t i = 0; i < count; ++i) shared::adamw_step(p[i], g[i], m[i], v[i], f);
}

constexpr std::int32_t kInfinityBits = 0x7f800000;

TANDEM_INLINE std::int32_t magnitude_of(float x) {
    return static_cast<std::int32_t>(shared::bits_of(x) & 0x7fffffffu);
}

// The same step, which also returns the largest magnitude of what it wrote. Its time is that of its memory traffic too.
TANDEM_CLONES std::int32_t adamw_looking_loop(float* __restrict p, const float* __restrict g,
                                              float* __restrict m, float* __restrict v, std::int64_t count,
                                              const AdamWFactors& factors) {
    const AdamWFactors f = factors;
    std::int32_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        shared::adamw_step(p[i], g[i], m[i], v[i], f);
        most = magnitude_of(p[i]) > most ? magnitude_of(p[i]) : most;
        most = magnitude_of(m[i]) > most ? magnitude_of(m[i]) : most;
        most = magnitude_of(v[i]) > most ? magnitude_of(v[i]) : most;
    }
    return most;
}

std::int64_t count_non_finite(const float* p, const float* m, const float* v, std::int64_t count) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t most = std::max({magnitude_of(p[i]), magnitude_of(m[i]), magnitude_of(v[i])});
        found += most >= kInfinityBits ? 1 : 0;
    }
    return found;
}

void round_stochastically(const float* from, std::int64_t first, const AdamWParams& params, bfloat16* to,
                          std::int64_t count) {
    shared::StochasticBits bits(params.seed, static_cast<std::uint64_t>(params.step));
    for (std::int64_t i = 0; i < count; ++i)
        to[i].bits = shared::bfloat16_bits_stochastic(from[i], bits.of(first + i));
}

typedef float Floats __attribute__((vector_size(32)));  // 8 of them
typedef double Doubles __attribute__((vector_size(64)));

// Lanes enough, and values asked for early enough, that only memory's bandwidth is waited for.
TANDEM_CLONES double square_sum_loop(const float* x, std::int64_t count) {
    constexpr int kSums = 4;  // of 8 lanes
    constexpr std::int64_t kAhead = 2048;
    Doubles sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + 8 * kSums <= count; i += 8 * kSums) {
        for (int line = 0; line < 2; ++line) __builtin_prefetch(x + i + kAhead + 16 * line);
        for (int s = 0; s < kSums; ++s) {
            Floats part;
            __builtin_memcpy(&part, x + i + 8 * s, sizeof(part));
            const Doubles wide = __builtin_convertvector(part, Doubles);
            sums[s] += wide * wide;
        }
    }
    for (int l = 0; i < count; ++i, ++l)
        sums[l / 8][l % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const Doubles lanes = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params, Tensor non_finite, Tensor rounded) {
    stream.enqueue([=] {
        const AdamWFactors factors = shared::adamw_factors(params);
        std::array<float, kBlock> scratch, mean, square;
        const bool wide = param.dtype() == DType::float32;
        std::int64_t found = 0;
        for (std::int64_t at = 0; at < param.numel(); at += kBlock) {
            const std::int64_t count = std::min(kBlock, param.numel() - at);
            const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
            float* m = exp_avg.data<float>() + at;
            float* v = exp_avg_sq.data<float>() + at;
            float* p = params.write ? detail::begin_row(param, at, scratch.data()) : scratch.data();
            if (!params.write) {
                m = static_cast<float*>(std::memcpy(mean.data(), m, bytes));
                v = static_cast<float*>(std::memcpy(square.data(), v, bytes));
                if (wide) std::memcpy(p, param.data<float>() + at, bytes);
            }
            detail::read_row(param, at, count, p);
            const float* g = grad.data<float>() + at;
            if (!non_finite.defined()) {
                adamw_loop(p, g, m, v, count, factors);
            } else if (adamw_looking_loop(p, g, m, v, count, factors) >= kInfinityBits) {
                found += count_non_finite(p, m, v, count);
            }
            if (!params.write) continue;
            if (rounded.defined()) detail::narrow(p, rounded.data<bfloat16>() + at, count);
            if (!wide && params.stochastic_rounding) {
                round_stochastically(p, params.first_element + at, params, param.data<bfloat16>() + at,
                                     count);
            } else {
                detail::finish_row(param, at, count, p);
            }
        }
        if (non_finite.defined()) *non_finite.data<std::int64_t>() += found;
    });
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    stream.synchronize();
    return square_sum_loop(values.data<float>(), values.numel());
}

}  // namespace tandem::ops::cpu
