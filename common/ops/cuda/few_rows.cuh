// y = x · weight^T (+ bias) for the few rows of a decode step.
#pragma once

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::TANDEM_KERNELS {

// Whether linear_few_rows takes them: bfloat16 x and weight of at most shared::kDecodeRows rows of x, rows of
// both at multiples of 16 bytes.
bool takes_few_rows(const Tensor& x, const Tensor& weight);

// As ops::linear; takes_few_rows must hold. A row of y is the same bit for bit whatever else is in x.
void linear_few_rows(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y);

}  // namespace tandem::ops::TANDEM_KERNELS
