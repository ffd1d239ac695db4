#include "trainer/loss/value_loss.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

ValueTerm value_loss(float value, float old_value, float target_return, float clip) {
    const float error = value - target_return;
    const float moved = value - old_value;
    const ValueTerm plain{0.5f * error * error, error, false};
    if (clip <= 0 || std::abs(moved) <= clip) return plain;
    const float bounded = old_value + std::clamp(moved, -clip, clip) - target_return;
    const float other = 0.5f * bounded * bounded;
    if (other > plain.loss) return {other, 0.0f, true};  // does not depend on the value
    return plain;
}

}  // namespace tandem::trainer
