// Evaluation of the policy on prompts that it is never trained on: sampled as in training, and greedily.
// Collective.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/rollout/rollout.h"

namespace tandem::trainer {

struct EvaluationOptions {
    std::uint64_t seed = 0;
    double temperature = 1;
    std::int64_t max_new_tokens = 1;
    std::int64_t version = 0;  // of the weights that the engine serves
    std::int64_t samples = 1;  // of each prompt; 0: greedy only
    double pass_score = 1;     // a completion with this reward or more has passed
};

// Over all held-out prompts.
struct HeldOutScores {
    double reward = 0;     // mean
    double pass_at_1 = 0;  // share that passed
    double pass_at_k = 0;  // share of prompts of whose k samples at least one passed
    double length_mean = 0;
    double truncated = 0;
};

struct HeldOutResult {
    HeldOutScores greedy;
    std::optional<HeldOutScores> sampled;
};
struct Evaluation {
    HeldOutResult result;             // of the prompts without a fault
    Rollout greedy;                   // for people to read
    std::vector<SampleFault> faults;  // samples whose reward is infinite or NaN
};

Evaluation evaluate(Rollouts& engine, const Task& task, const EvaluationOptions& options);

}  // namespace tandem::trainer
