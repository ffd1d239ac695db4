#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/error.h"

namespace tandem::trainer {
namespace {

double decay_factor(const Schedule& schedule, double progress) {
    switch (schedule.decay) {
        case Schedule::Decay::cosine:
            return schedule.floor +
                   (1.0 - schedule.floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
        case Schedule::Decay::linear:
            return 1.0 - (1.0 - schedule.floor) * progress;
        case Schedule::Decay::constant:
            break;
    }
    return 1.0;
}

}  // namespace

double learning_rate(const Schedule& schedule, double peak, std::int64_t step) {
    require(step >= 0 && schedule.total_steps > 0, "step {} of a schedule of {} steps", step,
            schedule.total_steps);
    const auto t = static_cast<double>(step);
    const double warmup =
        schedule.warmup_steps > 0 ? std::min(1.0, (t + 1) / static_cast<double>(schedule.warmup_steps)) : 1.0;
    const double progress = std::min(1.0, t / static_cast<double>(schedule.total_steps));
    return peak * warmup * decay_factor(schedule, progress);
}

}  // namespace tandem::trainer
