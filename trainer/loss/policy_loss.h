// Policy gradients as functions of a log-ratio: of one token, or of a sequence, which the caller then spreads
// over its tokens.
#pragma once

#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

struct PolicyTerm {
    float loss = 0;
    float dlog_ratio = 0;       // dloss / dlog_ratio
    bool clipped_low = false;   // the ratio left the range below, and the loss no longer depends on it
    bool clipped_high = false;  // above
    bool dual_clipped = false;
};

// Schulman et al. 2017 (PPO), eq. 7; DAPO (Yu et al. 2025) for two bounds; dual clip: Ye et al. 2020, eq. 4.
//   ratio = exp(clamp(log_ratio, -20, 20)), log_ratio = logprob - old_logprob
//   loss = max(-ratio A, -clamp(ratio, 1 - clip_low, 1 + clip_high) A)
//   with dual_clip c > 1, where A < 0: min(loss, -c A)
// The clamp is verl's (core_algos.py, compute_policy_loss): far beyond any clip range, it keeps a ratio that
// would be infinite from making 0 advantages no numbers.
inline constexpr float kLogRatioBound = 20.0f;
PolicyTerm clipped_policy_loss(float log_ratio, float advantage, const LossOptions& options);

}  // namespace tandem::trainer
