#include "trainer/nn/decoder_layer.h"

#include <utility>

#include "common/model/layer_sequence.h"
#include "common/ops/elementwise.h"

namespace tandem::trainer {

DecoderLayer::DecoderLayer(RmsNorm input_norm, Attention attention, RmsNorm post_attention_norm, Mlp mlp)
    : input_norm_(std::move(input_norm)),
      attention_(std::move(attention)),
      post_attention_norm_(std::move(post_attention_norm)),
      mlp_(std::move(mlp)) {}

Tensor DecoderLayer::into_block(const Compute& compute, const Tensor& kept) {
    return compute.tensor.all_rows(compute.stream, kept, std::ssize(compute.positions));
}

// Written where peers read it, if they will.
Tensor DecoderLayer::normed(const Compute& compute, const RmsNorm& norm, const Tensor& x,
                            RmsNorm::Saved& saved) {
    const Tensor y = compute.tensor.cuts_rows() ? empty_terms(compute, x.shape(), x.dtype()) : Tensor();
    return into_block(compute, norm.forward(compute, x, saved, y));
}

Tensor DecoderLayer::out_of_block(const Compute& compute, const Tensor& terms) {
    return compute.tensor.sum(compute.stream, terms);
}

struct DecoderLayer::Steps {
    const DecoderLayer& of;
    const Compute& compute;
    Saved& saved;

    Tensor normed(model::Role role, const Tensor& x) {
        return role == model::Role::input_norm
                   ? of.normed(compute, of.input_norm_, x, saved.input_norm)
                   : of.normed(compute, of.post_attention_norm_, x, saved.post_attention_norm);
    }
    Tensor attention(const Tensor& h) {
        return out_of_block(compute, of.attention_.forward(compute, h, saved.attention));
    }
    Tensor mlp(const Tensor& h) { return out_of_block(compute, of.mlp_.forward(compute, h, saved.mlp)); }
    Tensor added(const Tensor& x, const Tensor& update) {
        ops::add(compute.stream, update, x);
        return update;
    }
};

Tensor DecoderLayer::forward(const Compute& compute, const Tensor& x, Saved& saved) const {
    return model::run_layer(Steps{*this, compute, saved}, x);
}

void DecoderLayer::drop(Saved& saved, Checkpointing checkpointing) const {
    if (checkpointing == Checkpointing::none) return;
    saved.mlp = {};
    if (checkpointing == Checkpointing::selective) return attention_.drop(saved.attention);
    saved.attention = {};
    saved.post_attention_norm = {};
}

void DecoderLayer::recompute(const Compute& compute, Saved& saved, Checkpointing checkpointing) const {
    if (checkpointing == Checkpointing::none) return;
    Steps steps{*this, compute, saved};
    const Tensor x = saved.input_norm.x;
    if (checkpointing == Checkpointing::selective) {
        attention_.recompute(compute, steps.normed(model::Role::input_norm, x), saved.attention);
    } else {
        saved.post_attention_norm.x = model::run_attention_half(steps, x);
    }
    const Tensor x1 = saved.post_attention_norm.x;
    mlp_.expand(compute, steps.normed(model::Role::post_norm, x1), saved.mlp);
}

Tensor DecoderLayer::gradient_into_block(const Compute& compute, const Tensor& dy) {
    if (compute.later == nullptr || compute.tensor.cuts_rows()) return into_block(compute, dy);
    const Tensor kept = empty_activation(compute, dy.shape(), dy.dtype());
    copy(compute.stream, dy.span(), kept.span());
    return kept;
}

Tensor DecoderLayer::backward(const Compute& compute, Tensor dy, Saved saved) const {
    {
        const Tensor dh1 =
            out_of_block(compute, mlp_.backward(compute, gradient_into_block(compute, dy), saved.mlp));
        saved.mlp = {};
        post_attention_norm_.backward(compute, dh1, saved.post_attention_norm, dy, /*accumulate_dx=*/true);
        saved.post_attention_norm = {};
    }
    const Tensor dh = out_of_block(
        compute, attention_.backward(compute, gradient_into_block(compute, dy), saved.attention));
    input_norm_.backward(compute, dh, saved.input_norm, dy, /*accumulate_dx=*/true);
    return dy;
}

}  // namespace tandem::trainer
