// AdamW over a flat shard (Loshchilov & Hutter, "Decoupled weight decay regularization"; PyTorch's
// torch.optim.AdamW):
//   p -= lr * weight_decay * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
//   p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#pragma once

#include <cstdint>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

struct AdamWParams {
    float lr = 1e-3f;
    float beta1 = 0.9f;
    float beta2 = 0.95f;
    float eps = 1e-8f;
    float weight_decay = 0.0f;
    std::int64_t step = 1;    // t, from 1
    float grad_scale = 1.0f;  // g is multiplied by this first (clipping)
    // Rounds parameters in bfloat16 up or down at random, correct on average, instead of to the nearest. The
    // random bits depend on (seed, step, first_element + i) only: the same however the tensor is sharded.
    bool stochastic_rounding = false;
    std::uint64_t seed = 0;
    std::int64_t first_element = 0;  // position of the shard in the whole parameter
    bool write = true;               // false: nothing but `non_finite` changes
};

// All of one numel; param float32 or bfloat16, the others float32. `non_finite`, int64 [1] on the stream's device,
// grows by the elements of which the step's parameter (before it is rounded to bfloat16) or a moment is infinite or NaN;
// undefined: they are not counted. `rounded`, bfloat16, of a float32 param: gets what a cast of the new param would make;
// undefined: nothing does.
void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params, Tensor non_finite = {}, Tensor rounded = {});
// Sum of squares in fp64, in a fixed order. Waits for the stream.
double sum_of_squares(Stream& stream, const Tensor& values);
double sum_of_squares(const Tensor& values);  // in host memory

TANDEM_BACKENDS(adamw)
TANDEM_BACKENDS(sum_of_squares)

}  // namespace tandem::ops
