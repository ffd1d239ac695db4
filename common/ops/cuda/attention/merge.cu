// The two small ops of ring attention: a warp has a row of a head.
#include <cmath>

#include "common/ops/attention.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 256;
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

__global__ void __launch_bounds__(kThreads)
    merge_kernel(Elements block_out, const float* block_lse, std::int64_t row_begin, std::int64_t rows,
                 std::int64_t all_rows, std::int64_t heads, std::int64_t dim, Elements out, float* lse) {
    const std::int64_t lane = threadIdx.x % 32;
    std::int64_t item = blockIdx.x * kWarps + threadIdx.x / 32;
    for (; item < rows * heads; item += gridDim.x * kWarps) {
        const std::int64_t row = item / heads;
        const std::int64_t head = item % heads;
        const float block = block_lse[head * rows + row];
        if (block == -INFINITY) continue;
        float* const running = lse + head * all_rows + row_begin + row;
        const float before = *running;
        const float max = block > before ? block : before;
        const float weight_block = expf(block - max);
        const float weight_before = expf(before - max);
        const float sum = weight_block + weight_before;
        const std::int64_t base = (row_begin * heads + item) * dim;
        for (std::int64_t at = lane * kVector; at < dim; at += 32 * kVector) {
            float from[8], to[8];
            load8(block_out, item * dim + at, dim - at, from);
            load8(out, base + at, dim - at, to);
#pragma unroll
            for (int i = 0; i < 8; ++i) to[i] = (to[i] * weight_before + from[i] * weight_block) / sum;
            store8(out, base + at, dim - at, to);
        }
        __syncwarp();  // every lane has read the running sum
        if (lane == 0) *running = max + logf(sum);
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

void attention_merge(Stream& stream, const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     Tensor out, Tensor lse) {
    Work work(stream, "attention_merge");
    const std::int64_t rows = block_out.dim(0), heads = out.dim(1), dim = out.dim(2);
    work.launch(merge_kernel, blocks_for(rows * heads), kThreads, 0, elements(block_out, dim),
                block_lse.data<float>(), row_begin, rows, out.dim(0), heads, dim, elements(out, dim),
                lse.data<float>());
}

}  // namespace tandem::ops::TANDEM_KERNELS
