#include "trainer/loss/policy_loss.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

PolicyTerm clipped_policy_loss(float log_ratio, float advantage, const LossOptions& options) {
    const float bounded_log_ratio = std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound);
    const float ratio = std::exp(bounded_log_ratio);
    const float plain = -ratio * advantage;
    const float bounded = -std::clamp(ratio, 1.0f - options.clip_low, 1.0f + options.clip_high) * advantage;
    PolicyTerm term{plain, bounded_log_ratio == log_ratio ? plain : 0.0f};
    if (bounded > plain) {
        term.loss = bounded;
        term.dlog_ratio = 0;
        (ratio < 1.0f ? term.clipped_low : term.clipped_high) = true;
    }
    if (options.dual_clip > 1.0f && advantage < 0 && -options.dual_clip * advantage < term.loss) {
        term.loss = -options.dual_clip * advantage;
        term.dlog_ratio = 0;
        term.dual_clipped = true;
    }
    return term;
}

}  // namespace tandem::trainer
