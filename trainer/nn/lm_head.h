// Final norm and head, for the rows that have a target: log-probabilities, and in training the loss's
// gradient in the same pass. The logits exist for one chunk of rows at a time.
#pragma once

#include <functional>

#include "trainer/nn/linear.h"
#include "trainer/nn/rms_norm.h"

namespace tandem::trainer {

// A rank's targets: row of the hidden states, and the token that it should predict. Rows ascend.
struct Targets {
    std::span<const std::int32_t> rows;
    std::span<const std::int32_t> tokens;
};

// Called for each chunk: log-probs of targets [first, first + n) in, dloss/dlogprob out.
using TargetLoss =
    std::function<void(std::int64_t first, std::span<const float> logprobs, std::span<float> dlogprobs)>;

class LmHead {
  public:
    LmHead(RmsNorm norm, Parameter& weight, std::int64_t chunk_rows);  // weight [vocab, hidden]

    // logprobs[i] of target i. Forward only.
    void logprobs(const Compute& compute, const Tensor& hidden, const Targets& targets,
                  std::span<float> logprobs) const;
    // Forward, loss and backward; returns dhidden.
    Tensor loss(const Compute& compute, const Tensor& hidden, const Targets& targets,
                const TargetLoss& loss) const;

  private:
    // The rows of `hidden` that have a target, normed.
    Tensor select(const Compute& compute, const Tensor& hidden, const Targets& targets,
                  RmsNorm::Saved& saved) const;
    // dlogits[rows, vocab] -> dselected, and the weight's gradient.
    void backward_chunk(const Compute& compute, const Tensor& dlogits, const Tensor& selected,
                        Tensor dselected) const;

    RmsNorm norm_;
    Parameter* weight_;
    std::int64_t chunk_rows_;
};

}  // namespace tandem::trainer
