#include "trainer/loss/token_loss.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace tandem::trainer {

LossFunction supervised_loss() {
    return [](const TokenInput& token) { return TokenLoss{-token.logprob, -1.0f, 0.0f, 0.0f}; };
}

LossFunction grpo_loss(float clip_low, float clip_high) {
    require(clip_low >= 0 && clip_low < 1 && clip_high >= 0, "clip range [1 - {}, 1 + {}] is not around 1",
            clip_low, clip_high);
    return [clip_low, clip_high](const TokenInput& token) {
        const float log_ratio = token.logprob - token.old_logprob;
        const float ratio = std::exp(log_ratio);
        const float plain = -ratio * token.advantage;
        const float bounded = -std::clamp(ratio, 1.0f - clip_low, 1.0f + clip_high) * token.advantage;
        const bool clipped = bounded > plain;  // then the loss does not depend on the ratio
        return TokenLoss{clipped ? bounded : plain, clipped ? 0.0f : plain, clipped ? 1.0f : 0.0f,
                         std::expm1(log_ratio) - log_ratio};
    };
}

}  // namespace tandem::trainer
