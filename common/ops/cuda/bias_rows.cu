#include "common/ops/cuda/bias_rows.cuh"

#include <algorithm>

#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

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

}  // namespace tandem::ops::TANDEM_KERNELS
