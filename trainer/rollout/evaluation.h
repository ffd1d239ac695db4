// How good the policy is on prompts that it is never trained on: sampled as in training, and greedily.
// Collective.
#pragma once

#include <cstdint>

#include "trainer/rollout/rollout.h"

namespace tandem::trainer {

struct EvaluationOptions {
    std::uint64_t seed = 0;
    double temperature = 1;
    std::int64_t max_new_tokens = 1;
    std::int64_t version = 0;  // of the weights that the engine serves
};

struct Evaluation {
    double reward = 0;  // mean over the held-out prompts, sampled
    double greedy = 0;  // the same, greedily
};

Evaluation evaluate(Rollouts& engine, const Task& task, const EvaluationOptions& options);

}  // namespace tandem::trainer
