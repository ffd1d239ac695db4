// The weight that makes up for an engine which samples from slightly other probabilities than the trainer
// computes (other kernels, other precision, older weights).
#pragma once

#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

struct ImportanceWeight {
    float weight = 1;
    bool truncated = false;
};

// Truncated importance sampling (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
// RL training"): w = exp(old_logprob - rollout_logprob), both of the sampled token, old by the trainer.
//   clamp: clamp(w, tis_low, tis_high)
//   band ("icepop", Ring team 2025): w inside [tis_low, tis_high], 0 outside
// A constant of the loss: nothing is differentiated through it.
ImportanceWeight importance_weight(float old_logprob, float rollout_logprob, const LossOptions& options);

}  // namespace tandem::trainer
