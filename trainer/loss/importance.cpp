#include "trainer/loss/importance.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

ImportanceWeight importance_weight(float old_logprob, float rollout_logprob, const LossOptions& options) {
    if (options.truncation == LossOptions::Truncation::off) return {};
    const float weight = std::exp(old_logprob - rollout_logprob);
    const float bounded = std::clamp(weight, options.tis_low, options.tis_high);
    if (bounded == weight) return {weight, false};
    return {options.truncation == LossOptions::Truncation::clamp ? bounded : 0.0f, true};
}

}  // namespace tandem::trainer
