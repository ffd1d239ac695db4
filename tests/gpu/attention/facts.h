// What the GPU's tensor cores and its 2^x give, for facts_test.cpp: the instructions of common/ops/cuda/instructions.cuh,
// which the host only imitates.
#pragma once

#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::tests {

// out[i] = c[i] + a[i] b[i]^T by one product each. a [count, 16, 16], b [count, 8, 16] bfloat16, c and out
// [count, 16, 8] float32.
void products_on_gpu(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& out);

// The 16 rows of 16 numbers that load_matrices (or its transposing form) leaves in the registers of a warp: out
// [4, 32, 2]: of matrix i, lane, the low half and the high one. rows [32, 8] bfloat16: lane l's row of 16 bytes.
void loaded_on_gpu(Stream& stream, const Tensor& rows, bool transposed, const Tensor& out);

void exp2_on_gpu(Stream& stream, const Tensor& x, const Tensor& y);  // float32

}  // namespace tandem::tests
