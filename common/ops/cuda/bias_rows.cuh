// c[row] += bias, for matmuls whose epilogue cannot add it.
#pragma once

#include "common/ops/cuda/work.cuh"
#include "common/tensor/tensor.h"

namespace tandem::ops::TANDEM_KERNELS {

void add_bias_rows(Work& work, const Tensor& bias, const Tensor& c);

}  // namespace tandem::ops::TANDEM_KERNELS
