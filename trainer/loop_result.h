// What a run has come to: counted by the loop, kept by checkpoints (loop_state.cpp lists every field), told
// by summary.json.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/rollout/evaluation.h"

namespace tandem::trainer {

// Where the time of one sync went, in milliseconds as rank 0 sees them.
struct SyncTimes {
    double total = 0;  // pause to resume
    double prepare = 0, pause = 0, gather = 0, copy = 0, load = 0, resume = 0;
    double speed_of_light = 0;
};

struct LoopResult {
    std::string task;  // its name
    std::int64_t sft_steps = 0;
    std::int64_t grpo_steps = 0;
    HeldOutResult first, last;
    std::int64_t weight_version = 0;  // number of syncs
    bool weights_match = false;
    double logprob_max_abs_diff = 0;  // engine against trainer, over all rollouts
    std::vector<SyncTimes> syncs;
    std::int64_t trained_tokens = 0;
    std::int64_t generated_tokens = 0;
    double train_seconds = 0;
    double generate_seconds = 0;
    double reinforce_flops = 0;    // model FLOPs of the updates
    double reinforce_seconds = 0;  // that they took
    double product_rate = 0;
    double seconds = 0;
};

}  // namespace tandem::trainer
