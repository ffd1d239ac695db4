// Where a run stands: what the loop needs to go on as if it had never stopped. Prompts, seeds and schedules
// are functions of the step, so there is nothing else to remember.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trainer/loop_result.h"

namespace tandem::trainer {

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
