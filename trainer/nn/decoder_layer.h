// One decoder layer: x + attention(norm(x)), then x + mlp(norm(x)). Hidden states, x, are the rows that TensorParallel keeps
// between the blocks; attention and mlp see all rows of the pack's part and make this rank's term of the sum.
#pragma once

#include "trainer/nn/attention.h"
#include "trainer/nn/checkpointing.h"
#include "trainer/nn/mlp.h"
#include "trainer/nn/rms_norm.h"

namespace tandem::trainer {

class DecoderLayer {
  public:
    struct Saved {
        RmsNorm::Saved input_norm;
        Attention::Saved attention;
        RmsNorm::Saved post_attention_norm;
        Mlp::Saved mlp;
    };

    DecoderLayer(RmsNorm input_norm, Attention attention, RmsNorm post_attention_norm, Mlp mlp);

    Tensor forward(const Compute& compute, const Tensor& x, Saved& saved) const;
    // Between forward and backward: drops what recompute() makes again. Collective where attention is.
    void drop(Saved& saved, Checkpointing checkpointing) const;
    void recompute(const Compute& compute, Saved& saved, Checkpointing checkpointing) const;
    // Takes dy's memory and returns dx in it. What was saved goes as soon as it has been used.
    Tensor backward(const Compute& compute, Tensor dy, Saved saved) const;

  private:
    struct Steps;
    // The block's input from the rows that are kept; its output from the block's terms. Each is the other's gradient.
    static Tensor into_block(const Compute& compute, const Tensor& kept);
    // The norm's output as the block's input.
    static Tensor normed(const Compute& compute, const RmsNorm& norm, const Tensor& x, RmsNorm::Saved& saved);
    static Tensor out_of_block(const Compute& compute, const Tensor& terms);
    // The gradient of a block's output, in memory that stays as it is where weights' gradients are made later.
    static Tensor gradient_into_block(const Compute& compute, const Tensor& dy);

    RmsNorm input_norm_;
    Attention attention_;
    RmsNorm post_attention_norm_;
    Mlp mlp_;
};

}  // namespace tandem::trainer
