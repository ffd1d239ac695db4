// Casts, sums and fills.
#pragma once

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// to[i] = from[i]: of one dtype, or between float32, bfloat16 and float16 (round to nearest even). To float16
// on the CPU only.
void cast(Stream& stream, const Tensor& from, Tensor to);
// a[i] += b[i]; dtypes float32 or bfloat16, may differ; the sum is fp32.
void add(Stream& stream, Tensor a, const Tensor& b);
void scale(Stream& stream, Tensor a, float factor);  // float32
void fill_zero(Stream& stream, Tensor a);

TANDEM_BACKENDS(cast)
TANDEM_BACKENDS(add)
TANDEM_BACKENDS(scale)
TANDEM_BACKENDS(fill_zero)

}  // namespace tandem::ops
