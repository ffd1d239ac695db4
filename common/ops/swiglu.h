// y = silu(gate) * up, elementwise; arithmetic in fp32.
#pragma once

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y);
void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup);

TANDEM_BACKENDS(swiglu)
TANDEM_BACKENDS(swiglu_backward)

}  // namespace tandem::ops
