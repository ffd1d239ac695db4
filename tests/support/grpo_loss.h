// GRPO's loss (the initial values of LossOptions) under other clips.
#pragma once

#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

inline LossOptions grpo_loss(float clip_low, float clip_high) {
    LossOptions options;
    options.clip_low = clip_low;
    options.clip_high = clip_high;
    return options;
}

}  // namespace tandem::trainer
