// Statistics of a batch of rollouts. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/rollout/rollout.h"

namespace tandem::trainer {

struct RolloutStatistics {
    double reward_mean = 0;
    double reward_std = 0;  // of the population
    double reward_min = 0, reward_max = 0;
    double length_mean = 0;  // tokens of a completion, stop token included
    std::int64_t length_max = 0;
    double truncated = 0;       // share of completions that max_new_tokens ended
    double without_signal = 0;  // share of groups whose rewards are all equal: they teach nothing
    double staleness = 0;       // mean of version - the version that made a completion
};

// `rollout` holds groups of `group` samples of one prompt; `version` is that of the weights about to be
// trained.
RolloutStatistics statistics_of(const Rollout& rollout, std::int64_t group, std::int64_t version);

// Unbiased estimate that at least one of k samples passes, from n of which c passed: 1 - C(n-c, k) / C(n, k)
// (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1).
double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k);

}  // namespace tandem::trainer
