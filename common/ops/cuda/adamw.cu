// AdamW over a flat shard, and the sum of squares that clipping needs.
#include "common/ops/adamw.h"
#include "common/ops/cuda/eights.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/adamw_step.h"
#include "common/ops/shared/random.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr std::int64_t kSumBlocks = 1024;  // a constant: the order of the sum must not depend on the GPU

__device__ __forceinline__ bool is_non_finite(float value) {
    return (shared::bits_of(value) & 0x7f800000u) == 0x7f800000u;
}

struct Rounding {
    bool stochastic;
    std::uint64_t seed, step;
    std::int64_t first_element;
};

template <bool kBfloat16>  // parameters
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Elements param, Elements grad, Elements exp_avg, Elements exp_avg_sq, Elements rounded,
                 shared::AdamWFactors factors, Rounding rounding, Reach reach, std::int64_t count, bool write,
                 int* non_finite) {
    __shared__ int room[32];
    int found = 0;
    for_eights(reach, count, [&](const auto& eight) {
        float p[8], g[8], m[8], v[8];
        eight.template load<kBfloat16>(param, p);
        eight.load(grad, g);
        eight.load(exp_avg, m);
        eight.load(exp_avg_sq, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) shared::adamw_step(p[i], g[i], m[i], v[i], factors);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            found += is_non_finite(p[i]) || is_non_finite(m[i]) || is_non_finite(v[i]);
        if (!write) return;
        eight.store(exp_avg, m);
        eight.store(exp_avg_sq, v);
        if (kBfloat16 && rounding.stochastic) {
            shared::StochasticBits bits(rounding.seed, rounding.step);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const std::uint32_t random = bits.of(rounding.first_element + eight.element(i));
                p[i] = shared::float_of_bfloat16(shared::bfloat16_bits_stochastic(p[i], random));
            }
        }
        eight.template store<kBfloat16>(param, p);
        if (rounded.data != nullptr) eight.template store<true>(rounded, p);
    });
    if (non_finite == nullptr) return;
    found = block_sum(found, room);
    if (threadIdx.x == 0) non_finite[blockIdx.x] = found;
}

// Adds what each block has found to the counter.
__global__ void __launch_bounds__(kThreads)
    count_kernel(const int* found, std::int64_t blocks, std::int64_t* counter) {
    __shared__ std::int64_t room[32];
    std::int64_t sum = 0;
    for (std::int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += found[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *counter += sum;
}

__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(Elements values, Reach reach, std::int64_t count, double* partial) {
    __shared__ double room[32];
    double sum = 0.0;
    for_eights(reach, count, [&](const auto& eight) {
        float v[8];
        eight.load(values, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    });
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
           const AdamWParams& params, Tensor non_finite, Tensor rounded) {
    Work work(stream, "adamw");
    const std::int64_t count = param.numel();
    const Rounding rounding{param.dtype() == DType::bfloat16 && params.stochastic_rounding, params.seed,
                            static_cast<std::uint64_t>(params.step), params.first_element};
    const Elements p = flat(param), g = flat(grad), m = flat(exp_avg), v = flat(exp_avg_sq);
    const Elements r = rounded.defined() ? flat(rounded) : Elements{};
    const Reach reach = rounded.defined() ? TANDEM_KERNELS::reach(true, p, g, m, v, r)
                                          : TANDEM_KERNELS::reach(true, p, g, m, v);
    const std::int64_t blocks = std::min(ceil_div(count, kThreads * kVector), kGridBlocks);
    int* const found = non_finite.defined() ? work.scratch<int>(blocks) : nullptr;
    work.launch(p.is_bfloat16 ? adamw_kernel<true> : adamw_kernel<false>, blocks, kThreads, 0, p, g, m, v, r,
                shared::adamw_factors(params), rounding, reach, count, params.write, found);
    if (found == nullptr) return;
    work.launch(count_kernel, 1, kThreads, 0, static_cast<const int*>(found), blocks,
                non_finite.data<std::int64_t>());
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    double result = 0.0;
    {
        Work work(stream, "sum_of_squares");
        const std::int64_t count = values.numel();
        const std::int64_t blocks = std::min(ceil_div(count, kThreads * kVector), kSumBlocks);
        double* partial = work.scratch<double>(blocks + 1);
        double* total = partial + blocks;
        const Elements from = flat(values);
        work.launch(square_sum_kernel, blocks, kThreads, 0, from, reach(false, from), count, partial);
        work.launch(total_kernel, 1, kThreads, 0, static_cast<const double*>(partial), blocks, total);
        work.download(total, std::span<double>(&result, 1));
        work.synchronize();
    }
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
