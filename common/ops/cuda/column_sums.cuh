// Sums over the rows of partial results, in a fixed order: the second half of the gradients of weights that
// all rows share.
#pragma once

#include <cstdint>

#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// to[column] += sum of partial[row][column], rows in a fixed order.
void add_column_sums(Work& work, const float* partial, std::int64_t rows, std::int64_t columns, float* to);

}  // namespace tandem::ops::TANDEM_KERNELS
