#include "trainer/nn/mlp.h"

#include "common/ops/swiglu.h"

namespace tandem::trainer {

void Mlp::expand(const Compute& compute, const Tensor& x, Saved& saved) const {
    saved.x = x;
    saved.gate = gate_.forward(compute, x);
    saved.up = up_.forward(compute, x);
}

Tensor Mlp::forward(const Compute& compute, const Tensor& x, Saved& saved) const {
    expand(compute, x, saved);
    Tensor product = empty_activation(compute, saved.up.shape(), compute.dtype);
    ops::swiglu(compute.stream, saved.gate, saved.up, product);
    return down_.forward(compute, product,
                         empty_terms(compute, {x.dim(0), down_.out_features()}, compute.dtype));
}

Tensor Mlp::backward(const Compute& compute, const Tensor& dy, const Saved& saved) const {
    // The product is computed again rather than kept: it is cheap, and the largest activation of a layer.
    Tensor product = empty_activation(compute, saved.up.shape(), compute.dtype);
    ops::swiglu(compute.stream, saved.gate, saved.up, product);
    Tensor dproduct = empty_activation(compute, product.shape(), compute.dtype);
    down_.backward(compute, dy, product, dproduct);

    // The product's memory is free again, unless down's gradient is still to be made.
    Tensor dgate =
        compute.later == nullptr ? product : empty_activation(compute, product.shape(), compute.dtype);
    Tensor dup = empty_activation(compute, product.shape(), compute.dtype);
    ops::swiglu_backward(compute.stream, dproduct, saved.gate, saved.up, dgate, dup);
    dproduct = {};
    Tensor dx = empty_terms(compute, saved.x.shape(), compute.dtype);
    gate_.backward(compute, dgate, saved.x, dx);
    up_.backward(compute, dup, saved.x, dx, /*accumulate_dx=*/true);
    return dx;
}

}  // namespace tandem::trainer
