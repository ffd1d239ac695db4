// One batch of rollouts: prompts, the engine's completions, the verifier's rewards. Collective.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/task.h"
#include "trainer/rollout/rollouts.h"
#include "trainer/rollout/sample_fault.h"

namespace tandem::trainer {

// Prompts to sample, each with a seed of its own, and the version of the weights that must answer.
struct RolloutRequest {
    std::vector<PromptId> ids;  // a prompt that is sampled n times appears n times in a row
    std::vector<std::uint64_t> seeds;
    Sampling sampling;
    std::int64_t version = 0;
};

// Entry i of each list belongs to ids[i].
struct Rollout {
    std::vector<PromptId> ids;
    std::vector<Tokens> prompts;
    std::vector<Completion> completions;
    std::vector<float> rewards;         // NaN where there is no completion
    std::vector<std::string> expected;  // the right answers, on rank 0 alone; may be empty texts
    std::vector<std::pair<std::size_t, SampleFault>> faults;  // entries whose reward is infinite or NaN
    double generate_seconds = 0;                              // of this rank: the engine's part
    double reward_seconds = 0;

    std::int64_t generated_tokens() const;
};

// The same on every rank: rank 0 reads the prompts, each once, asks the engine and judges; the others
// receive. Throws what Rollouts::generate and Task::rewards throw.
Rollout roll_out(Rollouts& engine, const Task& task, const RolloutRequest& request);

}  // namespace tandem::trainer
