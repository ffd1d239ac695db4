// Matrix multiplication: by oneDNN on the CPU, by cuBLASLt on a GPU.
#pragma once

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

enum class Transpose { no, yes };

// c[m, n] = op(a)[m, k] · op(b)[k, n], or += with accumulate. a and b: both float32 or both bfloat16; c:
// float32, or bfloat16 when the inputs are. Sums are fp32. With a not transposed, a row of c depends only on
// its row of a and on op(b): the same values bit for bit whatever m is, on any number of threads, from a
// plain or a packed weight (batch invariance). That lets engine and trainer agree, and it follows from how a
// matmul is cut (cpu/product.h), not from what a library happens to choose. TANDEM_PRODUCTS=base in the
// environment turns off the kernels that are only faster; it changes no bit.
void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate = false);

// Any of these dims may be 0: a sum over nothing is 0 (or c as it was, with accumulate).

// y[tokens, out] = x[tokens, in] · weight[out, in]^T
void linear(Stream& stream, const Tensor& x, const Tensor& weight, Tensor y);
// The same + bias[out], of the weight's dtype, added in fp32 before y is rounded. An undefined bias is none.
void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y);
// dx[tokens, in] = dy[tokens, out] · weight[out, in], or += with accumulate
void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate = false);
// dweight[out, in] = dy[tokens, out]^T · x[tokens, in], or += with accumulate; dweight is float32
void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight,
                            bool accumulate);
// dbias[out] += sum of the rows of dy[tokens, out], in a fixed order; dbias is float32
void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias);

// Threads that this process's ops may use on the CPU. Default 1.
void set_compute_threads(int threads);
int compute_threads();

TANDEM_BACKENDS(matmul)
TANDEM_BACKENDS(linear, const Tensor&, const Tensor&, const Tensor&)
TANDEM_BACKENDS(linear_backward_input)
TANDEM_BACKENDS(linear_backward_weight)
TANDEM_BACKENDS(linear_backward_bias)

}  // namespace tandem::ops
