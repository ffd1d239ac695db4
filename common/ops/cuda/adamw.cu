// AdamW over a flat shard, and the sum of squares that clipping needs.
#include "common/ops/cuda/backend.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/adamw_step.h"
#include "common/ops/shared/random.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSumBlocks = 512;  // a constant: the order of the sum must not depend on the GPU

struct Rounding {
    bool stochastic;
    std::uint64_t seed, step;
    std::int64_t first_element;
};

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Elements param, Elements grad, Elements exp_avg, Elements exp_avg_sq,
                 shared::AdamWFactors factors, Rounding rounding, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
    std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
    for (; at < count; at += step) {
        float p[8], g[8], m[8], v[8];
        load8(param, at, count - at, p);
        load8(grad, at, count - at, g);
        load8(exp_avg, at, count - at, m);
        load8(exp_avg_sq, at, count - at, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) shared::adamw_step(p[i], g[i], m[i], v[i], factors);
        store8(exp_avg, at, count - at, m);
        store8(exp_avg_sq, at, count - at, v);
        if (rounding.stochastic) {
            shared::StochasticBits bits(rounding.seed, rounding.step);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const std::uint32_t random = bits.of(rounding.first_element + at + i);
                p[i] = shared::float_of_bfloat16(shared::bfloat16_bits_stochastic(p[i], random));
            }
        }
        store8(param, at, count - at, p);
    }
}

__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(Elements values, std::int64_t count, double* partial) {
    __shared__ double room[32];
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
    std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
    double sum = 0.0;
    for (; at < count; at += step) {
        float v[8];
        load8(values, at, count - at, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    total_kernel(const double* partial, std::int64_t count, double* total) {
    __shared__ double room[32];
    double sum = 0.0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params) {
    Work work(stream, "adamw");
    const std::int64_t count = param.numel();
    const Rounding rounding{param.dtype() == DType::bfloat16 && params.stochastic_rounding, params.seed,
                            static_cast<std::uint64_t>(params.step), params.first_element};
    work.launch(adamw_kernel, std::min(ceil_div(count, kThreads * kVector), kGridBlocks), kThreads, 0,
                flat(param), flat(grad), flat(exp_avg), flat(exp_avg_sq), shared::adamw_factors(params),
                rounding, count);
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    double result = 0.0;
    {
        Work work(stream, "sum_of_squares");
        const std::int64_t count = values.numel();
        const std::int64_t blocks = std::min(ceil_div(count, kThreads * kVector), kSumBlocks);
        double* partial = work.scratch<double>(blocks + 1);
        double* total = partial + blocks;
        work.launch(square_sum_kernel, blocks, kThreads, 0, flat(values), count, partial);
        work.launch(total_kernel, 1, kThreads, 0, static_cast<const double*>(partial), blocks, total);
        work.download(total, std::span<double>(&result, 1));
        work.synchronize();
    }
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
