// Losses and advantages against the golden vectors of the reference notes, and against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/error.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/token_loss.h"

namespace tandem::trainer {
namespace {

const std::vector<float> kOld{-1.0f, -2.0f, -0.5f, -3.0f, -0.7f};
const std::vector<float> kNew{-0.9f, -2.5f, -0.1f, -3.2f, -0.1f};
const std::vector<float> kAdvantages{1.0f, -1.0f, 2.0f, -0.5f, -1.0f};

TEST(Grpo, GoldenLossAndClipping) {
    const std::vector<float> loss{-1.105171f, 0.8f, -2.56f, 0.409365f, 1.822119f};
    const std::vector<float> clipped{0, 1, 1, 0, 0};
    const LossFunction grpo = grpo_loss(0.2f, 0.28f);
    for (std::size_t i = 0; i < loss.size(); ++i) {
        const TokenLoss token = grpo({kNew[i], kAdvantages[i], kOld[i]});
        EXPECT_NEAR(token.loss, loss[i], 2e-6) << i;
        EXPECT_EQ(token.clipped, clipped[i]) << i;
    }
}

TEST(Grpo, GradientIsTheLosssDerivative) {
    const LossFunction grpo = grpo_loss(0.2f, 0.28f);
    for (std::size_t i = 0; i < kOld.size(); ++i) {
        const float step = 1e-3f;
        const float up = grpo({kNew[i] + step, kAdvantages[i], kOld[i]}).loss;
        const float down = grpo({kNew[i] - step, kAdvantages[i], kOld[i]}).loss;
        EXPECT_NEAR(grpo({kNew[i], kAdvantages[i], kOld[i]}).dlogprob, (up - down) / (2 * step), 1e-3) << i;
    }
}

TEST(Grpo, OnPolicyHasRatioOneAndNoKl) {
    const TokenLoss token = grpo_loss(0.2f, 0.2f)({-1.5f, 0.7f, -1.5f});
    EXPECT_FLOAT_EQ(token.loss, -0.7f);
    EXPECT_FLOAT_EQ(token.dlogprob, -0.7f);
    EXPECT_EQ(token.clipped, 0.0f);
    EXPECT_EQ(token.kl, 0.0f);
}

TEST(Grpo, KlIsTheK3Estimate) {
    for (std::size_t i = 0; i < kOld.size(); ++i) {
        const double log_ratio = static_cast<double>(kNew[i]) - kOld[i];
        EXPECT_NEAR(grpo_loss(0.2f, 0.2f)({kNew[i], 0, kOld[i]}).kl, std::exp(log_ratio) - 1 - log_ratio,
                    1e-6);
    }
}

TEST(Grpo, RefusesARangeThatIsNotAroundOne) {
    EXPECT_THROW(grpo_loss(1.0f, 0.2f), InvalidArgument);
    EXPECT_THROW(grpo_loss(0.2f, -0.1f), InvalidArgument);
}

TEST(Supervised, IsNegativeLogProb) {
    const TokenLoss token = supervised_loss()({-2.5f, 7.0f, 3.0f});
    EXPECT_EQ(token.loss, 2.5f);
    EXPECT_EQ(token.dlogprob, -1.0f);
}

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
