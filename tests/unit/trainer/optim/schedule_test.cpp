// The two schedules of the quickstart's recipe, and the ends of their ranges.
#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/error.h"
#include "trainer/optim/grad_norm.h"

namespace tandem::trainer {
namespace {

TEST(Schedule, WarmupTimesCosineToAFloor) {
    const Schedule schedule{Schedule::Decay::cosine, 20, 450, 0.1};
    for (const int t : {0, 1, 10, 19, 20, 200, 449}) {
        const double expected = 6e-3 * std::min(1.0, (t + 1) / 20.0) *
                                (0.1 + 0.9 * (1 + std::cos(std::numbers::pi * t / 450)) / 2);
        EXPECT_NEAR(learning_rate(schedule, 6e-3, t), expected, 1e-15) << t;
    }
    EXPECT_NEAR(learning_rate(schedule, 1.0, 450), 0.1, 1e-12);
    EXPECT_NEAR(learning_rate(schedule, 1.0, 10000), 0.1, 1e-12);
}

TEST(Schedule, WarmupTimesLinearDecay) {
    const Schedule schedule{Schedule::Decay::linear, 5, 60, 0.1};
    for (const int t : {0, 4, 5, 30, 59}) {
        EXPECT_NEAR(learning_rate(schedule, 1e-3, t),
                    1e-3 * std::min(1.0, (t + 1) / 5.0) * (1 - 0.9 * t / 60), 1e-15);
    }
}

TEST(Schedule, ConstantWithoutWarmup) {
    EXPECT_EQ(learning_rate({}, 0.5, 0), 0.5);
    EXPECT_EQ(learning_rate({}, 0.5, 7), 0.5);
    EXPECT_THROW(learning_rate({}, 0.5, -1), InvalidArgument);
}

TEST(Clip, ScalesOnlyWhatIsTooLong) {
    EXPECT_EQ(clip_scale(0.5, 1.0f), 1.0f);
    EXPECT_NEAR(clip_scale(4.0, 1.0f), 0.25f, 1e-6);
    EXPECT_EQ(clip_scale(4.0, 0.0f), 1.0f);  // off
}

}  // namespace
}  // namespace tandem::trainer
