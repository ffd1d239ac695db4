// The critic's loss.
#pragma once

namespace tandem::trainer {

struct ValueTerm {
    float loss = 0;
    float dvalue = 0;
    bool clipped = false;
};

// PPO's clipped value loss (OpenAI baselines, ppo2), old = the value before the first update:
//   loss = 1/2 max((value - return)^2, (old + clamp(value - old, -clip, clip) - return)^2)
// clip 0: without the second.
ValueTerm value_loss(float value, float old_value, float target_return, float clip);

}  // namespace tandem::trainer
