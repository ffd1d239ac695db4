// Advantages against the golden vectors of the reference notes.
#include "trainer/loss/advantages.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/error.h"

namespace tandem::trainer {
namespace {

TEST(Advantages, GoldenGroup) {
    const std::vector<float> rewards{1, 0, 0, 1};
    const auto advantages = group_advantages(rewards, 4);
    const std::vector<float> expected{0.866024f, -0.866024f, -0.866024f, 0.866024f};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(advantages[i], expected[i], 1e-6);
}

TEST(Advantages, EqualRewardsGiveExactlyZero) {
    // 0.1 has no finite binary form: its mean rounds, and dividing by 1e-6 would show it.
    const std::vector<float> rewards{0.1f, 0.1f, 0.1f, 1.0f, 0.0f, 0.5f};
    const auto advantages = group_advantages(rewards, 3);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(advantages[i], 0.0f);
    EXPECT_NEAR(advantages[3], 1.0f, 1e-5);
    EXPECT_EQ(group_advantages(rewards, 1), std::vector<float>(6, 0.0f));
}

TEST(Advantages, RefusesABrokenGroup) {
    EXPECT_THROW(group_advantages(std::vector<float>(5), 2), InvalidArgument);
    EXPECT_THROW(group_advantages(std::vector<float>(4), 0), InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer
