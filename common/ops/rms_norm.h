// y = x / sqrt(mean(x²) + eps) * weight over the last dim; arithmetic in fp32.
#pragma once

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// x, y [rows, dim] (or any shape that ends in dim; qk-norm passes [tokens, heads, head_dim]), float32 or
// bfloat16; weight [dim] of the same dtype; rstd [rows] float32 out (undefined where no backward follows).
void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd = {});
// x += update, rounded to x's dtype, then y as above: the bits of add() and rms_norm(), in one pass over the rows.
void add_rms_norm(Stream& stream, Tensor x, const Tensor& update, const Tensor& weight, float eps, Tensor y);
// Writes dx or adds to it; adds to dweight [dim] float32. rstd comes from the forward.
void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx = false);

TANDEM_BACKENDS(rms_norm)
TANDEM_BACKENDS(add_rms_norm)
TANDEM_BACKENDS(rms_norm_backward)

}  // namespace tandem::ops
