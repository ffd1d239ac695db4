// Grouped-query self-attention: projections, optional RMSNorm of each head's query and key, RoPE, attention
// over the pack (by the ContextParallel of the moment), output projection.
#pragma once

#include <optional>

#include "common/model/model_config.h"
#include "common/ops/rope.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/rms_norm.h"

namespace tandem::trainer {

struct AttentionParameters {
    Linear q_proj;
    Linear k_proj;
    Linear v_proj;
    Linear o_proj;
    Parameter* q_norm = nullptr;  // null without qk-norm
    Parameter* k_norm = nullptr;
};

class Attention {
  public:
    struct Saved {
        Tensor x;
        RmsNorm::Saved q_norm;
        RmsNorm::Saved k_norm;
        ContextSaved context;
    };

    // Has this rank's heads: as many as the projections make.
    Attention(const model::ModelConfig& config, ops::RopeTable rope, const AttentionParameters& parameters);

    Tensor forward(const Compute& compute, const Tensor& x, Saved& saved) const;
    Tensor backward(const Compute& compute, const Tensor& dy, const Saved& saved) const;  // dx

    // Drops what recompute() can make again without a projection or the attention: the input, and queries and
    // keys where they are cheap to make from what the norms keep.
    void drop(Saved& saved) const;
    void recompute(const Compute& compute, const Tensor& x, Saved& saved) const;

  private:
    struct Steps;
    // Gradient of one rotated (and normed) projection, float32 from attention, back to the projection's
    // output.
    Tensor unrotate(const Compute& compute, Tensor dheads, const std::optional<RmsNorm>& norm,
                    const RmsNorm::Saved& saved) const;

    std::int64_t heads_;
    std::int64_t kv_heads_;
    std::int64_t head_dim_;
    ops::RopeTable rope_;
    float scale_;
    Linear q_proj_;
    Linear k_proj_;
    Linear v_proj_;
    Linear o_proj_;
    std::optional<RmsNorm> q_norm_;
    std::optional<RmsNorm> k_norm_;
};

}  // namespace tandem::trainer
