// The interface between the head and a loss, target by target. The head knows no loss, a loss knows no
// logits.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::trainer {

// A rank's targets: row of the hidden states, and the token that it should predict. Rows ascend.
struct Targets {
    std::span<const std::int32_t> rows;
    std::span<const std::int32_t> tokens;
};

// The model's scores of each target. As an output, an empty span is one that is not wanted.
struct TargetScores {
    std::span<float> logprobs;   // of the token under softmax(logits / temperature)
    std::span<float> entropies;  // of that distribution
    std::span<float> values;     // of the state that predicts the token, by the value head
};

struct TargetGradients {
    std::span<float> dlogprobs;
    std::span<float> dentropies;  // empty unless TargetLoss::differentiates_entropy
    std::span<float> dvalues;     // empty unless TargetLoss::trains_values
};

class TargetLoss {
  public:
    virtual ~TargetLoss() = default;
    virtual float temperature() const = 0;
    virtual bool differentiates_entropy() const = 0;
    virtual bool trains_values() const = 0;
    // true: look_ahead() gets the log-probs of all targets, also when there are none, before gradients() is
    // called for the first. Costs the head's forward twice where the targets are more than one chunk.
    virtual bool looks_ahead() const = 0;
    virtual void look_ahead(std::span<const float> logprobs) = 0;
    // For each chunk: scores of targets [first, first + n) in, the loss's derivatives out.
    virtual void gradients(std::int64_t first, const TargetScores& scores, const TargetGradients& out) = 0;
};

}  // namespace tandem::trainer
