// A loss as a function of one token's log-probability, and the two that we train with. Nothing here knows of
// ranks: the mean over the global number of target tokens is taken by whoever calls it.
#pragma once

#include <functional>

namespace tandem::trainer {

struct TokenInput {
    float logprob = 0;
    float advantage = 0;
    float old_logprob = 0;
};
struct TokenLoss {
    float loss = 0;
    float dlogprob = 0;  // dloss / dlogprob
    float clipped = 0;   // 1 when the ratio was clipped
    float kl = 0;        // estimate of KL(old || new)
};
using LossFunction = std::function<TokenLoss(const TokenInput&)>;

// -logprob.
LossFunction supervised_loss();

// The clipped policy gradient of PPO and GRPO: ratio = exp(logprob - old_logprob),
//   loss = max(-ratio A, -clamp(ratio, 1 - clip_low, 1 + clip_high) A).
// kl is the k3 estimate from samples of the old policy: ratio - 1 - log(ratio), never negative.
LossFunction grpo_loss(float clip_low, float clip_high);

}  // namespace tandem::trainer
