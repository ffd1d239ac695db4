// AdamW on the CPU: one pass over the flat shard.
#include "common/ops/adamw.h"

#include <algorithm>
#include <array>

#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/shared/adamw_step.h"

namespace tandem::ops::cpu {
namespace {

using shared::AdamWFactors;

constexpr std::int64_t kBlock = 4096;  // a multiple of the 8 neighbours that share a random number

TANDEM_CLONES void adamw_loop(float* __restrict p, const float* __restrict g, float* __restrict m,
                              float* __restrict v, std::int64_t count, const AdamWFactors& factors) {
    const AdamWFactors f = factors;
    for (std::int64_t i = 0; i < count; ++i) shared::adamw_step(p[i], g[i], m[i], v[i], f);
}

void round_stochastically(const float* from, std::int64_t first, const AdamWParams& params, bfloat16* to,
                          std::int64_t count) {
    shared::StochasticBits bits(params.seed, static_cast<std::uint64_t>(params.step));
    for (std::int64_t i = 0; i < count; ++i)
        to[i].bits = shared::bfloat16_bits_stochastic(from[i], bits.of(first + i));
}

TANDEM_CLONES double square_sum_loop(const float* x, std::int64_t count) {
    double lanes[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int l = 0; l < 8; ++l) lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
    }
    for (int l = 0; i + l < count; ++l)
        lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params) {
    stream.enqueue([=] {
        const AdamWFactors factors = shared::adamw_factors(params);
        std::array<float, kBlock> scratch;
        const bool wide = param.dtype() == DType::float32;
        const std::int64_t block = wide ? param.numel() : kBlock;
        for (std::int64_t at = 0; at < param.numel(); at += block) {
            const std::int64_t count = std::min(block, param.numel() - at);
            float* p = detail::begin_row(param, at, scratch.data());
            detail::read_row(param, at, count, p);
            adamw_loop(p, grad.data<float>() + at, exp_avg.data<float>() + at, exp_avg_sq.data<float>() + at,
                       count, factors);
            if (!wide && params.stochastic_rounding) {
                round_stochastically(p, params.first_element + at, params, param.data<bfloat16>() + at,
                                     count);
            } else {
                detail::finish_row(param, at, count, p);
            }
        }
    });
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    stream.synchronize();
    return square_sum_loop(values.data<float>(), values.numel());
}

}  // namespace tandem::ops::cpu
