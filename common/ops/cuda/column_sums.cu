#include "common/ops/cuda/column_sums.cuh"

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

}  // namespace

void add_column_sums(Work& work, const float* partial, std::int64_t rows, std::int64_t columns, float* to) {
    if (rows == 0) return;
    work.launch(column_sums_kernel, ceil_div(columns, kColumns), kColumns * kParts, 0, partial, rows, columns,
                to);
}

}  // namespace tandem::ops::TANDEM_KERNELS
