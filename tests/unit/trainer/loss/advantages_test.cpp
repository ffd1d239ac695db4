// Advantages against the golden vectors of the reference notes, by hand, and what must not count.
#include "trainer/loss/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/error.h"
#include "trainer/loss/batch_advantages.h"

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

TEST(Advantages, CenteredAndLeaveOneOut) {
    const std::vector<float> rewards{1, 0, 0, 1, 3, 3, 3, 3};
    EXPECT_EQ(centered_rewards(rewards, 4), (std::vector<float>{0.5f, -0.5f, -0.5f, 0.5f, 0, 0, 0, 0}));
    const auto rloo = leave_one_out(rewards, 4);
    EXPECT_NEAR(rloo[0], 1 - 1.0 / 3, 1e-6);  // the others have 0, 0, 1
    EXPECT_NEAR(rloo[1], 0 - 2.0 / 3, 1e-6);
    EXPECT_EQ(rloo[4], 0.0f);
}

TEST(Gae, OneStepAndTheMonteCarloEnds) {
    const std::vector<float> rewards{0, 0, 2}, values{0.5f, 1, -1};
    // lambda 0: the temporal differences. V after the end is 0.
    const Gae td = generalised_advantages(rewards, values, 0.5, 0);
    EXPECT_EQ(td.advantages, (std::vector<float>{0.0f, -1.5f, 3.0f}));
    // lambda 1, gamma 1: what is still to come, minus the value.
    const Gae whole = generalised_advantages(rewards, values, 1, 1);
    EXPECT_EQ(whole.advantages, (std::vector<float>{1.5f, 1.0f, 3.0f}));
    EXPECT_EQ(whole.returns, (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(discounted_returns(rewards, 0.5), (std::vector<float>{0.5f, 1, 2}));
    EXPECT_TRUE(generalised_advantages({}, {}, 1, 1).advantages.empty());
    EXPECT_THROW(generalised_advantages(rewards, std::vector<float>(2), 1, 1), InvalidArgument);
}

TEST(Whiten, MeanZeroVarianceOne) {
    std::vector<float> values{1, 2, 3, 10};
    whiten(values);
    double sum = 0, squares = 0;
    for (const float value : values) {
        sum += value;
        squares += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(sum, 0, 1e-6);
    EXPECT_NEAR(squares / 3, 1, 1e-6);
    std::vector<float> equal(5, 0.1f), one{7}, none;
    whiten(equal);
    whiten(one);
    whiten(none);
    for (const float value : equal) EXPECT_NEAR(value, 0, 1e-6);
    EXPECT_EQ(one[0], 0.0f);
}

// Two samples with a masked token among the targets, which no form may count or touch.
std::vector<Sample> masked_samples() {
    std::vector<Sample> samples(2);
    for (Sample& sample : samples) {
        sample.tokens.resize(5);
        sample.target_mask = {0, 1, 0, 1, 1};
        sample.old_logprobs = {0, -1, 99, -1, -1};
        sample.reference_logprobs = {0, -2, -99, -1.5f, -1};
        sample.values = {0, 0.5f, 99, 0.25f, 0};
    }
    return samples;
}

TEST(BatchAdvantages, MaskedTokensAreNoSteps) {
    AdvantageOptions options;
    options.kl = KlForm::k1;
    options.kl_coef = 0.5f;
    options.form = AdvantageOptions::Form::returns;
    auto samples = masked_samples();
    set_advantages(samples, std::vector<float>{1, 0}, options);
    EXPECT_EQ(samples[0].advantages, (std::vector<float>{0, 0.25f, 0, 0.75f, 1}));
    EXPECT_EQ(samples[1].advantages, (std::vector<float>{0, -0.75f, 0, -0.25f, 0}));
    options.form = AdvantageOptions::Form::gae;
    set_advantages(samples, std::vector<float>{1, 0}, options);
    EXPECT_EQ(samples[0].returns, (std::vector<float>{0, 0.25f, 0, 0.75f, 1}));
    EXPECT_EQ(samples[0].advantages, (std::vector<float>{0, -0.25f, 0, 0.5f, 1}));
    options.form = AdvantageOptions::Form::centered;
    options.group_size = 2;
    set_advantages(samples, std::vector<float>{1, 0}, options);
    EXPECT_EQ(samples[0].advantages[3], 0.5f);  // both lose the same sum of KLs
}

TEST(BatchAdvantages, WhitensOverTargetsAndRewardsBeforehand) {
    AdvantageOptions options;
    options.form = AdvantageOptions::Form::returns;
    options.whiten = true;
    auto samples = masked_samples();
    set_advantages(samples, std::vector<float>{3, 1}, options);
    const double scale = 1 / std::sqrt(6.0 / 5);  // of three threes and three ones
    EXPECT_NEAR(samples[0].advantages[1], scale, 1e-6);
    EXPECT_NEAR(samples[1].advantages[4], -scale, 1e-6);
    EXPECT_EQ(samples[0].advantages[2], 0.0f);
    options.whiten = false;
    options.whiten_rewards = true;
    set_advantages(samples, std::vector<float>{3, 1}, options);
    EXPECT_NEAR(samples[0].advantages[4], std::sqrt(0.5), 1e-6);
}

TEST(BatchAdvantages, RefusesWhatIsMissing) {
    AdvantageOptions options;
    options.form = AdvantageOptions::Form::gae;
    auto samples = masked_samples();
    EXPECT_THROW(set_advantages(samples, std::vector<float>{1}, options), InvalidArgument);
    samples[1].values.clear();
    EXPECT_THROW(set_advantages(samples, std::vector<float>{1, 0}, options), InvalidArgument);
    options.form = AdvantageOptions::Form::returns;
    options.kl_coef = 0.1f;
    samples[0].reference_logprobs.clear();
    EXPECT_THROW(set_advantages(samples, std::vector<float>{1, 0}, options), InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer
