#include "trainer/nn/mlp.h"

#include "common/model/layer_sequence.h"
#include "common/ops/swiglu.h"

namespace tandem::trainer {

struct Mlp::Steps {
    const Mlp& of;
    const Compute& compute;
    Saved& saved;

    Tensor projected(model::Role role, const Tensor& x) {
        if (role == model::Role::gate) return saved.gate = of.gate_.forward(compute, x);
        if (role == model::Role::up) return saved.up = of.up_.forward(compute, x);
        return of.down_.forward(compute, x,
                                empty_terms(compute, {x.dim(0), of.down_.out_features()}, compute.dtype));
    }
    Tensor activated(const Tensor& gate, const Tensor& up) {
        Tensor product = empty_activation(compute, up.shape(), compute.dtype);
        ops::swiglu(compute.stream, gate, up, product);
        return product;
    }
};

void Mlp::expand(const Compute& compute, const Tensor& x, Saved& saved) const {
    saved.x = x;
    Steps steps{*this, compute, saved};
    steps.projected(model::Role::gate, x);
    steps.projected(model::Role::up, x);
}

Tensor Mlp::forward(const Compute& compute, const Tensor& x, Saved& saved) const {
    saved.x = x;
    return model::run_mlp(Steps{*this, compute, saved}, x);
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
