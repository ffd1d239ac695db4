#include "trainer/nn/attention.h"

#include <cmath>
#include <utility>

#include "common/model/layer_sequence.h"
#include "common/ops/elementwise.h"

namespace tandem::trainer {
namespace {

// The gradient in the dtype that the matrix products take.
Tensor to_compute_dtype(const Compute& compute, const Tensor& gradient) {
    if (gradient.dtype() == compute.dtype) return gradient;
    Tensor result = empty_activation(compute, gradient.shape(), compute.dtype);
    ops::cast(compute.stream, gradient, result);
    return result;
}

}  // namespace

Attention::Attention(const model::ModelConfig& config, ops::RopeTable rope,
                     const AttentionParameters& parameters)
    : heads_(parameters.q_proj.out_features() / config.head_dim),
      kv_heads_(parameters.k_proj.out_features() / config.head_dim),
      head_dim_(config.head_dim),
      rope_(std::move(rope)),
      scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      q_proj_(parameters.q_proj),
      k_proj_(parameters.k_proj),
      v_proj_(parameters.v_proj),
      o_proj_(parameters.o_proj) {
    if (parameters.q_norm != nullptr) q_norm_.emplace(*parameters.q_norm, config.rms_norm_eps);
    if (parameters.k_norm != nullptr) k_norm_.emplace(*parameters.k_norm, config.rms_norm_eps);
}

// The steps of a forward, which keeps what the backward needs.
struct Attention::Steps {
    const Attention& of;
    const Compute& compute;
    Saved& saved;
    std::int64_t rows;

    Tensor heads(const Linear& projection, const Tensor& x, std::int64_t count, Tensor y = {}) {
        return projection.forward(compute, x, std::move(y)).reshape({rows, count, of.head_dim_});
    }
    // Keys and values end up where peers read them in place.
    Tensor shared() {
        return Tensor::empty({rows, of.kv_heads_, of.head_dim_}, compute.dtype, "activations",
                             compute.context.memory());
    }
    Tensor projected(model::Role role, const Tensor& x) {
        using model::Role;
        if (role == Role::q) return heads(of.q_proj_, x, of.heads_);
        if (role == Role::k) return heads(of.k_proj_, x, of.kv_heads_, of.k_norm_ ? Tensor() : shared());
        if (role == Role::v) return heads(of.v_proj_, x, of.kv_heads_, shared());
        return of.o_proj_.forward(compute, x.reshape({rows, of.heads_ * of.head_dim_}),
                                  empty_terms(compute, {rows, of.o_proj_.out_features()}, compute.dtype));
    }
    bool norms_heads() const { return of.q_norm_.has_value(); }
    Tensor head_normed(model::Role role, const Tensor& heads) {
        if (role == model::Role::q_norm) return of.q_norm_->forward(compute, heads, saved.q_norm);
        return of.k_norm_->forward(compute, heads, saved.k_norm, shared());
    }
    void rotate(const Tensor& heads) { ops::rope(compute.stream, heads, compute.positions, of.rope_); }
    Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v) {
        saved.context.q = q;
        saved.context.k = k;
        saved.context.v = v;
        compute.context.forward(saved.context, of.scale_);
        return saved.context.out;
    }
};

Tensor Attention::forward(const Compute& compute, const Tensor& x, Saved& saved) const {
    saved.x = x;
    return model::run_attention(Steps{*this, compute, saved, x.dim(0)}, x);
}

void Attention::drop(Saved& saved) const {
    saved.x = {};
    if (q_norm_) saved.context.q = {};
    if (k_norm_) saved.context.k = {};
}

void Attention::recompute(const Compute& compute, const Tensor& x, Saved& saved) const {
    saved.x = x;
    RmsNorm::Saved same;
    if (q_norm_) {
        saved.context.q = q_norm_->forward(compute, saved.q_norm.x, same);
        ops::rope(compute.stream, saved.context.q, compute.positions, rope_);
    }
    if (k_norm_) {
        saved.context.k =
            Tensor::empty(saved.k_norm.x.shape(), compute.dtype, "activations", compute.context.memory());
        k_norm_->forward(compute, saved.k_norm.x, same, saved.context.k);
        ops::rope(compute.stream, saved.context.k, compute.positions, rope_);
    }
}

Tensor Attention::backward(const Compute& compute, const Tensor& dy, const Saved& saved) const {
    const std::int64_t rows = dy.dim(0);
    const ContextSaved& context = saved.context;
    Tensor dout = empty_activation(compute, {rows, heads_ * head_dim_}, compute.dtype);
    o_proj_.backward(compute, dy, context.out.reshape(dout.shape()), dout);

    const ContextGrads grads = compute.context.backward(dout.reshape(context.out.shape()), context, scale_);
    const Tensor dq = unrotate(compute, grads.dq, q_norm_, saved.q_norm);
    const Tensor dk = unrotate(compute, grads.dk, k_norm_, saved.k_norm);
    const Tensor dv = to_compute_dtype(compute, grads.dv);

    Tensor dx = empty_terms(compute, saved.x.shape(), compute.dtype);
    q_proj_.backward(compute, dq.reshape({rows, heads_ * head_dim_}), saved.x, dx);
    k_proj_.backward(compute, dk.reshape({rows, kv_heads_ * head_dim_}), saved.x, dx, /*accumulate_dx=*/true);
    v_proj_.backward(compute, dv.reshape({rows, kv_heads_ * head_dim_}), saved.x, dx, /*accumulate_dx=*/true);
    return dx;
}

Tensor Attention::unrotate(const Compute& compute, Tensor dheads, const std::optional<RmsNorm>& norm,
                           const RmsNorm::Saved& saved) const {
    ops::rope_backward(compute.stream, dheads, compute.positions, rope_);
    const Tensor dnormed = to_compute_dtype(compute, dheads);
    if (!norm) return dnormed;
    Tensor dprojected = empty_activation(compute, dnormed.shape(), compute.dtype);
    norm->backward(compute, dnormed, saved, dprojected, /*accumulate_dx=*/false);
    return dprojected;
}

}  // namespace tandem::trainer
