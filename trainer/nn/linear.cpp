#include "trainer/nn/linear.h"

#include "common/ops/matmul.h"

namespace tandem::trainer {

Tensor Linear::forward(const Compute& compute, const Tensor& x, Tensor y) const {
    const Shape shape{x.dim(0), out_features()};
    y = y.defined() ? y.reshape(shape) : empty_activation(compute, shape, compute.dtype);
    ops::linear(compute.stream, x, weight_->value, bias_ != nullptr && adds_bias_ ? bias_->value : Tensor(),
                y);
    return y;
}

void Linear::backward(const Compute& compute, const Tensor& dy, const Tensor& x, Tensor dx,
                      bool accumulate_dx) const {
    add_gradient(compute, [&stream = compute.stream, weight = weight_, bias = bias_, dy, x] {
        ops::linear_backward_weight(stream, dy, x, weight->grad.memory(), weight->grad.adds());
        if (bias != nullptr) ops::linear_backward_bias(stream, dy, bias->grad.filled(stream));
    });
    ops::linear_backward_input(compute.stream, dy, weight_->value, dx, accumulate_dx);
}

}  // namespace tandem::trainer
