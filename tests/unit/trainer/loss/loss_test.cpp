// Losses, KL estimators and importance weights against the golden vectors of the reference notes, and every
// derivative against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "common/error.h"
#include "tests/support/grpo_loss.h"
#include "trainer/loss/batch_loss.h"
#include "trainer/loss/importance.h"
#include "trainer/loss/kl.h"
#include "trainer/loss/policy_loss.h"
#include "trainer/loss/value_loss.h"

namespace tandem::trainer {
namespace {

using List = std::vector<float>;

// Appendix A of the reference notes: two samples of 2 and 3 target tokens, of which the third is masked.
const List kOld{-1.0f, -2.0f, -0.5f, -3.0f, -0.7f};
const List kNew{-0.9f, -2.5f, -0.1f, -3.2f, -0.1f};
const List kAdvantages{1.0f, -1.0f, 2.0f, -0.5f, -1.0f};
const List kRollout{-1.2f, -2.1f, -0.4f, -2.0f, -0.7f};
const List kReference{-1.1f, -2.2f, -0.6f, -2.9f, -14.0f};

void expect_derivative(const std::function<float(float)>& f, float at, float derivative) {
    const float step = 1e-3f;
    EXPECT_NEAR(derivative, (f(at + step) - f(at - step)) / (2 * step), 2e-3 * (1 + std::abs(derivative)))
        << at;
}

TEST(PolicyLoss, GoldenLossAndClipping) {
    const List loss{-1.105171f, 0.8f, -2.56f, 0.409365f, 1.822119f};
    const List ratio{1.105171f, 0.606531f, 1.491825f, 0.818731f, 1.822119f};
    const std::vector<bool> low{false, true, false, false, false};
    const std::vector<bool> high{false, false, true, false, false};
    for (const float dual : {0.0f, 3.0f}) {  // no ratio here is large enough for the dual clip
        LossOptions options = grpo_loss(0.2f, 0.28f);
        options.dual_clip = dual;
        for (std::size_t i = 0; i < loss.size(); ++i) {
            EXPECT_NEAR(std::exp(kNew[i] - kOld[i]), ratio[i], 2e-6);
            const PolicyTerm term = clipped_policy_loss(kNew[i] - kOld[i], kAdvantages[i], options);
            EXPECT_NEAR(term.loss, loss[i], 2e-6) << i;
            EXPECT_EQ(term.clipped_low, low[i]) << i;
            EXPECT_EQ(term.clipped_high, high[i]) << i;
            EXPECT_FALSE(term.dual_clipped);
        }
    }
}

TEST(PolicyLoss, DualClipBoundsALargeRatioOfABadToken) {
    LossOptions options = grpo_loss(0.2f, 0.2f);
    EXPECT_NEAR(clipped_policy_loss(1.5f, -1, options).loss, 4.481689f, 1e-5);
    options.dual_clip = 3;
    const PolicyTerm term = clipped_policy_loss(1.5f, -1, options);
    EXPECT_EQ(term.loss, 3.0f);
    EXPECT_EQ(term.dlog_ratio, 0.0f);
    EXPECT_TRUE(term.dual_clipped);
    EXPECT_FALSE(clipped_policy_loss(1.5f, 1, options).dual_clipped);
}

TEST(PolicyLoss, GradientIsTheLosssDerivative) {
    LossOptions options = grpo_loss(0.2f, 0.28f);
    options.dual_clip = 3;
    for (const float advantage : {-2.0f, -0.5f, 0.0f, 1.5f}) {
        for (float log_ratio = -1.55f; log_ratio < 1.6f; log_ratio += 0.1f) {
            expect_derivative([&](float x) { return clipped_policy_loss(x, advantage, options).loss; },
                              log_ratio, clipped_policy_loss(log_ratio, advantage, options).dlog_ratio);
        }
    }
}

TEST(PolicyLoss, RatiosBeyondAllBoundsStayNumbers) {
    for (const float log_ratio : {-1000.0f, 1000.0f}) {
        for (const float advantage : {-1.0f, 0.0f, 1.0f}) {
            const PolicyTerm term = clipped_policy_loss(log_ratio, advantage, grpo_loss(0.2f, 0.2f));
            EXPECT_TRUE(std::isfinite(term.loss)) << log_ratio << " " << advantage;
            EXPECT_EQ(term.dlog_ratio, 0.0f);
        }
    }
}

TEST(Kl, GoldenValues) {
    const std::vector<std::pair<KlForm, List>> golden{
        {KlForm::k1, {0.2f, -0.3f, 0.5f, -0.3f, 13.9f}},
        {KlForm::k2, {0.02f, 0.045f, 0.125f, 0.045f, 96.605f}},
        {KlForm::k3, {0.018731f, 0.049859f, 0.106531f, 0.049859f, 12.900001f}},
        {KlForm::low_var, {0.018731f, 0.049859f, 0.106531f, 0.049859f, 10.0f}}};
    for (const auto& [form, values] : golden) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_NEAR(kl_term(form, kNew[i] - kReference[i]).value, values[i], 1e-6 * (1 + values[i]))
                << static_cast<int>(form) << " " << i;
        }
    }
}

TEST(Kl, GradientIsTheValuesDerivative) {
    for (const KlForm form : {KlForm::k1, KlForm::k2, KlForm::k3, KlForm::low_var}) {
        for (const float log_ratio : {-4.0f, -2.2f, -0.3f, 0.0f, 0.7f, 5.0f, 10.5f, 14.0f}) {
            expect_derivative([&](float x) { return kl_term(form, x).value; }, log_ratio,
                              kl_term(form, log_ratio).dlogprob);
        }
    }
    EXPECT_EQ(kl_term(KlForm::low_var, 14.0f).dlogprob, 0.0f);  // clamped
}

TEST(Kl, NamesItsForms) {
    EXPECT_EQ(kl_form_from_name("k1"), KlForm::k1);
    EXPECT_EQ(kl_form_from_name("low_var"), KlForm::low_var);
    EXPECT_THROW(kl_form_from_name("k4"), InvalidArgument);
}

TEST(Importance, GoldenWeights) {
    const List golden{1.221403f, 1.105171f, 0.904837f, 0.367879f, 1.0f};
    LossOptions options;
    options.truncation = LossOptions::Truncation::clamp;
    for (std::size_t i = 0; i < golden.size(); ++i) {
        const ImportanceWeight found = importance_weight(kOld[i], kRollout[i], options);
        EXPECT_NEAR(found.weight, golden[i], 1e-6);
        EXPECT_FALSE(found.truncated);
    }
}

TEST(Importance, TruncatesOrMasksOutsideTheBand) {
    LossOptions options;
    EXPECT_EQ(importance_weight(-1, -9, options).weight, 1.0f);  // off
    options.tis_low = 0.5f;
    options.tis_high = 2.0f;
    options.truncation = LossOptions::Truncation::clamp;
    EXPECT_EQ(importance_weight(-1, -9, options).weight, 2.0f);
    EXPECT_EQ(importance_weight(-9, -1, options).weight, 0.5f);
    EXPECT_TRUE(importance_weight(-9, -1, options).truncated);
    options.truncation = LossOptions::Truncation::band;
    EXPECT_EQ(importance_weight(-1, -9, options).weight, 0.0f);
    EXPECT_EQ(importance_weight(-9, -1, options).weight, 0.0f);
    EXPECT_NEAR(importance_weight(-1, -1.3f, options).weight, std::exp(0.3f), 1e-6);
}

TEST(ValueLoss, IsTheLargerOfPlainAndClipped) {
    EXPECT_FLOAT_EQ(value_loss(1.0f, 0.9f, 3.0f, 0.2f).loss, 2.0f);
    EXPECT_FLOAT_EQ(value_loss(1.0f, 0.9f, 3.0f, 0.2f).dvalue, -2.0f);
    // Moved 1 towards the return, counted as 0.2.
    const ValueTerm clipped = value_loss(2.0f, 1.0f, 3.0f, 0.2f);
    EXPECT_FLOAT_EQ(clipped.loss, 0.5f * 1.8f * 1.8f);
    EXPECT_EQ(clipped.dvalue, 0.0f);
    EXPECT_TRUE(clipped.clipped);
    EXPECT_FLOAT_EQ(value_loss(2.0f, 1.0f, 3.0f, 0.0f).loss, 0.5f);  // no clipping
    EXPECT_FLOAT_EQ(value_loss(0.0f, 1.0f, 3.0f, 0.2f).loss, 4.5f);  // moved away
    for (const float value : {-1.0f, 0.85f, 1.1f, 1.7f, 2.6f, 4.0f, 9.0f}) {
        expect_derivative([](float x) { return value_loss(x, 1.0f, 3.0f, 0.2f).loss; }, value,
                          value_loss(value, 1.0f, 3.0f, 0.2f).dvalue);
    }
}

// The vectors above as two samples; position 0 of each is the prompt.
std::vector<Sample> golden_samples() {
    const auto make = [](std::size_t begin, std::size_t count, std::vector<std::uint8_t> mask) {
        const auto part = [&](const List& all) {
            List result{0.0f};
            result.insert(result.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                          all.begin() + static_cast<std::ptrdiff_t>(begin + count));
            return result;
        };
        Sample sample;
        sample.tokens.resize(count + 1);
        sample.target_mask = std::move(mask);
        sample.advantages = part(kAdvantages);
        sample.old_logprobs = part(kOld);
        sample.rollout_logprobs = part(kRollout);
        sample.reference_logprobs = part(kReference);
        return sample;
    };
    return {make(0, 2, {0, 1, 1}), make(2, 3, {0, 0, 1, 1})};
}

double total(const LossOptions& options, const std::vector<Sample>& samples) {
    BatchLoss loss(samples, options);
    LossSums sums;
    for (const bool gradients : {false, true}) {
        std::size_t next = 0;
        for (std::size_t s = 0; s < samples.size(); ++s) {
            double log_ratio = 0;
            for (std::size_t i = 1; i < samples[s].tokens.size(); ++i, ++next) {
                const float logprob = kNew[next % kNew.size()];
                if (samples[s].target_mask[i] == 0) continue;
                log_ratio += logprob - samples[s].old_logprobs[i];
                if (gradients) loss.add({static_cast<int>(s), static_cast<std::int64_t>(i), logprob}, sums);
            }
            if (!gradients) loss.set_sequence(static_cast<int>(s), log_ratio);
        }
    }
    return loss.mean_loss(sums);
}

TEST(BatchLoss, AggregatesAsAsked) {
    const auto samples = golden_samples();
    LossOptions options = grpo_loss(0.2f, 0.28f);
    const double first = (-1.105171 + 0.8) / 2, second = (0.409365 + 1.822119) / 2;
    options.aggregation = LossOptions::Aggregation::sequence_mean;
    EXPECT_NEAR(total(options, samples), 0.963157 / 2, 1e-6);  // the notes' sum of sample means
    EXPECT_NEAR(total(options, samples), (first + second) / 2, 1e-6);
    options.aggregation = LossOptions::Aggregation::token_mean;
    EXPECT_NEAR(total(options, samples), (2 * first + 2 * second) / 4, 1e-6);
    options.aggregation = LossOptions::Aggregation::constant;
    options.constant_length = 5;
    EXPECT_NEAR(total(options, samples), (2 * first + 2 * second) / (2 * 5), 1e-6);
}

TEST(BatchLoss, AddsItsTermsUp) {
    const auto samples = golden_samples();
    LossOptions options = grpo_loss(0.2f, 0.28f);
    const double plain = total(options, samples);
    options.kl = KlForm::low_var;
    options.kl_coef = 0.1f;
    const double kl = (0.018731 + 0.049859 + 0.049859 + 10) / 4;
    EXPECT_NEAR(total(options, samples), plain + 0.1 * kl, 1e-6);
    options.kl_coef = 0;
    options.truncation = LossOptions::Truncation::clamp;
    EXPECT_NEAR(total(options, samples),
                (1.221403 * -1.105171 + 1.105171 * 0.8 + 0.367879 * 0.409365 + 1.822119) / 4, 1e-6);
}

TEST(BatchLoss, SequenceRatioIsTheExpOfTheMean) {
    const auto samples = golden_samples();
    LossOptions options = grpo_loss(0.2f, 0.28f);
    options.ratio = LossOptions::Ratio::sequence;
    // Means of new - old: (0.1 - 0.5) / 2 and (-0.2 + 0.6) / 2.
    const double first = std::exp(-0.2), second = std::exp(0.2);
    EXPECT_NEAR(total(options, samples), (-first * 1 + first * 1 + second * 0.5 + second * 1) / 4, 1e-6);
}

TEST(BatchLoss, OpsmLeavesOutBadSequencesThatDrifted) {
    const auto samples = golden_samples();
    LossOptions options = grpo_loss(0.2f, 0.28f);
    options.opsm_delta = 1e-4f;  // the first sequence's mean of old - new is 0.2, the second's -0.2
    EXPECT_NEAR(total(options, samples), (-1.105171 + 0.409365 + 1.822119) / 4, 1e-6);
}

TEST(BatchLoss, NamesTheSampleThatLacksSomething) {
    auto samples = golden_samples();
    samples[1].reference_logprobs.clear();
    LossOptions options;
    options.kl_coef = 0.1f;
    try {
        BatchLoss(samples, options);
        FAIL() << "a KL without a reference";
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("sample 1 has no reference_logprobs"), std::string::npos)
            << error.what();
    }
    options.kl_coef = 0;
    options.value_coef = 1;
    EXPECT_THROW(BatchLoss(samples, options), InvalidArgument);
    options = {};
    options.on_policy = true;
    options.truncation = LossOptions::Truncation::clamp;
    for (Sample& sample : samples) sample.old_logprobs.clear();
    BatchLoss(samples, options);  // needs none
    options.opsm_delta = 0.1f;
    EXPECT_THROW(BatchLoss(samples, options), InvalidArgument);
    options.opsm_delta = 0;
    options.ratio = LossOptions::Ratio::sequence;
    EXPECT_THROW(BatchLoss(samples, options), InvalidArgument);
    EXPECT_THROW(BatchLoss(samples, grpo_loss(1.0f, 0.2f)), InvalidArgument);
    EXPECT_THROW(BatchLoss(samples, grpo_loss(0.2f, -0.1f)), InvalidArgument);
    options = {};
    options.dual_clip = 0.5f;
    EXPECT_THROW(BatchLoss(samples, options), InvalidArgument);
}

TEST(BatchLoss, SupervisedIsNegativeLogProb) {
    const auto samples = golden_samples();
    EXPECT_NEAR(total(supervised_loss(), samples), (0.9 + 2.5 + 3.2 + 0.1) / 4, 1e-6);
}

}  // namespace
}  // namespace tandem::trainer
