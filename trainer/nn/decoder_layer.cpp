#include "trainer/nn/decoder_layer.h"

#include <utility>

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

Tensor DecoderLayer::forward(const Compute& compute, const Tensor& x, Saved& saved) const {
    const Tensor h = normed(compute, input_norm_, x, saved.input_norm);
    const Tensor x1 = out_of_block(compute, attention_.forward(compute, h, saved.attention));
    ops::add(compute.stream, x1, x);
    const Tensor h1 = normed(compute, post_attention_norm_, x1, saved.post_attention_norm);
    const Tensor x2 = out_of_block(compute, mlp_.forward(compute, h1, saved.mlp));
    ops::add(compute.stream, x2, x1);
    return x2;
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
    const Tensor x = saved.input_norm.x;
    const Tensor h = normed(compute, input_norm_, x, saved.input_norm);
    if (checkpointing == Checkpointing::selective) {
        attention_.recompute(compute, h, saved.attention);
    } else {
        saved.post_attention_norm.x = out_of_block(compute, attention_.forward(compute, h, saved.attention));
        ops::add(compute.stream, saved.post_attention_norm.x, x);
    }
    const Tensor x1 = saved.post_attention_norm.x;
    const Tensor h1 = normed(compute, post_attention_norm_, x1, saved.post_attention_norm);
    mlp_.expand(compute, h1, saved.mlp);
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
