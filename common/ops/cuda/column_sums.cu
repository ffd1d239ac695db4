// Column sums, the gradient of a bias, and a bias added by itself.
#include "common/ops/cuda/column_sums.cuh"

#include "common/ops/cuda/bias_rows.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/matmul.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kColumns = 32;  // of a block: a warp reads 128 bytes of a row
constexpr int kParts = 8;     // of the rows, summed side by side

__global__ void __launch_bounds__(kColumns* kParts)
    column_sums_kernel(const float* partial, std::int64_t rows, std::int64_t columns, float* to) {
    __shared__ float sums[kParts][kColumns];
    const int lane = static_cast<int>(threadIdx.x) % kColumns;
    const int part = static_cast<int>(threadIdx.x) / kColumns;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + lane;
    const std::int64_t per_part = (rows + kParts - 1) / kParts;
    const std::int64_t begin = part * per_part;
    const std::int64_t end = begin + per_part < rows ? begin + per_part : rows;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 8
        for (std::int64_t row = begin; row < end; ++row) sum += partial[row * columns + column];
    }
    sums[part][lane] = sum;
    __syncthreads();
    if (part != 0 || column >= columns) return;
    float total = sums[0][lane];
#pragma unroll
    for (int i = 1; i < kParts; ++i) total += sums[i][lane];
    to[column] += total;
}

constexpr int kBiasThreads = 128;
constexpr std::int64_t kBiasRows = 256;  // of a block

// Block (row block, column tile): a thread sums eight columns over the block's rows.
__global__ void __launch_bounds__(kBiasThreads)
    bias_kernel(Elements dy, std::int64_t rows, std::int64_t columns, std::int64_t tiles, float* partial) {
    const std::int64_t row_block = blockIdx.x / tiles;
    const std::int64_t tile = blockIdx.x % tiles;
    const std::int64_t column = (tile * kBiasThreads + threadIdx.x) * kVector;
    if (column >= columns) return;
    const std::int64_t count = columns - column;
    const std::int64_t begin = row_block * kBiasRows;
    const std::int64_t end = begin + kBiasRows < rows ? begin + kBiasRows : rows;
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

// Items: (row, eight columns).
__global__ void __launch_bounds__(256)
    bias_rows_kernel(Elements bias, Elements c, std::int64_t rows, std::int64_t columns) {
    const std::int64_t vectors = (columns + kVector - 1) / kVector;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; item < rows * vectors; item += step) {
        const std::int64_t at = item % vectors * kVector;
        const std::int64_t base = item / vectors * columns + at;
        float v[8], b[8];
        load8(c, base, columns - at, v);
        load8(bias, at, columns - at, b);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] += b[i];
        store8(c, base, columns - at, v);
    }
}

}  // namespace

void add_bias_rows(Work& work, const Tensor& bias, const Tensor& c) {
    const std::int64_t rows = c.dim(0), columns = c.dim(1);
    work.launch(bias_rows_kernel, std::min(ceil_div(rows * ceil_div(columns, kVector), 256), kGridBlocks),
                256, 0, elements(bias, columns), elements(c, columns), rows, columns);
}

void add_column_sums(Work& work, const float* partial, std::int64_t rows, std::int64_t columns, float* to) {
    if (rows == 0) return;
    work.launch(column_sums_kernel, ceil_div(columns, kColumns), kColumns * kParts, 0, partial, rows, columns,
                to);
}

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    Work work(stream, "linear_backward_bias");
    const std::int64_t rows = dy.dim(0);
    const std::int64_t columns = dy.dim(1);
    const std::int64_t tiles = ceil_div(columns, kBiasThreads * kVector);
    const std::int64_t row_blocks = ceil_div(rows, kBiasRows);
    float* partial = work.scratch<float>(row_blocks * columns);
    work.launch(bias_kernel, row_blocks * tiles, kBiasThreads, 0, elements(dy, columns), rows, columns, tiles,
                partial);
    add_column_sums(work, partial, row_blocks, columns, dbias.data<float>());
}

}  // namespace tandem::ops::TANDEM_KERNELS
