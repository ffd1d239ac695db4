// Learning-rate schedules: linear warm-up times a decay to a floor.
#pragma once

#include <cstdint>

namespace tandem::trainer {

struct Schedule {
    enum class Decay : std::uint8_t { constant, cosine, linear };
    Decay decay = Decay::constant;
    std::int64_t warmup_steps = 0;
    std::int64_t total_steps = 1;
    double floor = 0.0;  // fraction of the peak that is left at total_steps
};

// peak * min(1, (step + 1) / warmup_steps) * decay(step / total_steps), step from 0; past total_steps it
// stays at the floor.
//   cosine: floor + (1 - floor) * (1 + cos(pi t)) / 2        linear: 1 - (1 - floor) * t
double learning_rate(const Schedule& schedule, double peak, std::int64_t step);

}  // namespace tandem::trainer
