// The gradient of a bias: sums over blocks of rows, then over the blocks.
#include "common/ops/cuda/column_sums.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/matmul.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kBiasThreads = 128;
constexpr std::int64_t kRows = 256;  // of a block

// Block (row block, column tile): a thread sums eight columns over the block's rows.
__global__ void __launch_bounds__(kBiasThreads)
    bias_kernel(Elements dy, std::int64_t rows, std::int64_t columns, std::int64_t tiles, float* partial) {
    const std::int64_t row_block = blockIdx.x / tiles;
    const std::int64_t tile = blockIdx.x % tiles;
    const std::int64_t column = (tile * kBiasThreads + threadIdx.x) * kVector;
    if (column >= columns) return;
    const std::int64_t count = columns - column;
    const std::int64_t begin = row_block * kRows;
    const std::int64_t end = begin + kRows < rows ? begin + kRows : rows;
    float sum[8] = {};
    const auto add_rows = [&](const auto& load) {
#pragma unroll 8
        for (std::int64_t row = begin; row < end; ++row) {
            float v[8];
            load(row * columns + column, v);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] += v[i];
        }
    };
    if (dy.vector && dy.is_bfloat16) {
        add_rows([&](std::int64_t at, float(&v)[8]) { load_eight<true>(dy, at, v); });
    } else {
        add_rows([&](std::int64_t at, float(&v)[8]) { load8(dy, at, count, v); });
    }
    for (int i = 0; i < 8 && i < count; ++i) partial[row_block * columns + column + i] = sum[i];
}

}  // namespace

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    Work work(stream, "linear_backward_bias");
    const std::int64_t rows = dy.dim(0);
    const std::int64_t columns = dy.dim(1);
    const std::int64_t tiles = ceil_div(columns, kBiasThreads * kVector);
    const std::int64_t row_blocks = ceil_div(rows, kRows);
    float* partial = work.scratch<float>(row_blocks * columns);
    work.launch(bias_kernel, row_blocks * tiles, kBiasThreads, 0, elements(dy, columns), rows, columns, tiles,
                partial);
    add_column_sums(work, partial, row_blocks, columns, dbias.data<float>());
}

}  // namespace tandem::ops::TANDEM_KERNELS
