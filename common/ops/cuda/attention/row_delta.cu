// What the backward of attention needs of a row's result and gradient: a warp has a row of a head.
#include "common/ops/attention.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr std::int64_t kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) delta_kernel(Elements dout, Elements out, std::int64_t rows,
                                                         std::int64_t heads, std::int64_t dim, float* delta) {
    const std::int64_t lane = threadIdx.x % 32;
    std::int64_t item = blockIdx.x * kWarps + threadIdx.x / 32;
    for (; item < rows * heads; item += gridDim.x * kWarps) {
        float sum = 0.0f;
        for (std::int64_t at = lane * kVector; at < dim; at += 32 * kVector) {
            float a[8], o[8];
            load8(dout, item * dim + at, dim - at, a);
            load8(out, item * dim + at, dim - at, o);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += a[i] * o[i];
        }
        sum = warp_sum(sum);
        if (lane == 0) delta[item % heads * rows + item / heads] = sum;
    }
}

std::int64_t blocks_for(std::int64_t items) {
    return std::min(ceil_div(items, kWarps), kGridBlocks);
}

}  // namespace

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    Work work(stream, "attention_delta");
    const std::int64_t rows = out.dim(0), heads = out.dim(1), dim = out.dim(2);
    work.launch(delta_kernel, blocks_for(rows * heads), kThreads, 0, elements(dout, dim), elements(out, dim),
                rows, heads, dim, delta.data<float>());
}

}  // namespace tandem::ops::TANDEM_KERNELS
