#include "trainer/nn/rms_norm.h"

#include "common/ops/elementwise.h"
#include "common/ops/rms_norm.h"

namespace tandem::trainer {

Tensor RmsNorm::forward(const Compute& compute, const Tensor& x, Saved& saved, Tensor y) const {
    if (!y.defined()) y = empty_activation(compute, x.shape(), x.dtype());
    saved.x = x;
    saved.rstd = empty_activation(compute, {x.numel() / x.dim(-1)}, DType::float32);
    ops::rms_norm(compute.stream, x, weight_->value, eps_, y, saved.rstd);
    return y;
}

void RmsNorm::backward(const Compute& compute, const Tensor& dy, const Saved& saved, Tensor dx,
                       bool accumulate_dx) const {
    Tensor dweight;
    if (compute.later == nullptr) {
        dweight = weight_->grad.filled(compute.stream);
    } else {  // made with dx, and added later
        dweight = empty_activation(compute, weight_->value_shape, DType::float32);
        ops::fill_zero(compute.stream, dweight);
        compute.later->add([&stream = compute.stream, weight = weight_, dweight] {
            ops::add(stream, weight->grad.filled(stream), dweight);
        });
    }
    ops::rms_norm_backward(compute.stream, dy, saved.x, weight_->value, saved.rstd, dx, dweight,
                           accumulate_dx);
}

}  // namespace tandem::trainer
