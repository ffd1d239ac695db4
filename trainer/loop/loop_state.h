// The results of a run so far, which summary.json sums up, and the state that a checkpoint keeps of the loop:
// all that it needs to go on as if it had never stopped. Prompts, seeds and schedules are functions of the
// step, so there is nothing else to remember.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/rollout/evaluation.h"

namespace tandem::trainer {

// Time of one sync by phase, in milliseconds on rank 0.
struct SyncTimes {
    double total = 0;  // pause to resume
    double prepare = 0, pause = 0, gather = 0, copy = 0, load = 0, resume = 0, finish = 0;
    double pack = 0;  // the engine's first request of the version before had to wait for that
    double speed_of_light = 0;
};

// A field here has a line in loop_state.cpp, or a resumed run forgets it.
struct LoopResult {
    std::string task;  // its name
    std::int64_t sft_steps = 0;
    std::int64_t grpo_steps = 0;
    HeldOutResult first, last;
    std::int64_t weight_version = 0;    // number of syncs
    std::optional<bool> weights_match;  // none: the engine cannot say what it holds
    double logprob_max_abs_diff = 0;    // engine against trainer, over all rollouts
    std::vector<SyncTimes> syncs;
    // Steps of which something was left out because of what was infinite or NaN; the last of them in a row.
    std::int64_t skipped_steps = 0, skipped_in_a_row = 0;
    std::int64_t trained_tokens = 0;
    std::int64_t generated_tokens = 0;
    double train_seconds = 0;
    double generate_seconds = 0;
    double reinforce_flops = 0;    // model FLOPs of the updates
    double reinforce_seconds = 0;  // that they took
    double product_rate = 0;
    double seconds = 0;
};

struct LoopState {
    enum class Phase { sft, grpo } phase = Phase::sft;
    std::int64_t step = 0;  // done in this phase
    LoopResult result;      // so far; `seconds` too

    std::int64_t total_steps() const { return step + (phase == Phase::grpo ? result.sft_steps : 0); }
};

nlohmann::ordered_json to_json(const LoopState& state);
// Throws nlohmann's exceptions on what to_json has not written.
LoopState loop_state_from_json(const nlohmann::ordered_json& json);

}  // namespace tandem::trainer
