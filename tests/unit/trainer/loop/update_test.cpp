// The learning part of a step with a learner that is pretended: what it is asked for and what it is handed.
#include "trainer/loop/update.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;

// Log-probs, values and the reference's log-probs are constants.
class UpdateLearner final : public Learner {
  public:
    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override {
        events.push_back(options.reference ? "reference" : options.values ? "values" : "logprobs");
        temperature = options.temperature;
        const auto filled = [&](float value) {
            Scores::PerToken result;
            for (const Sample& s : samples) result.emplace_back(s.tokens.size(), value);
            return result;
        };
        Scores scores;
        scores.logprobs = filled(options.reference ? -1.5f : -1.0f);
        if (options.values) scores.values = filled(0.5f);
        return scores;
    }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override {
        EXPECT_FALSE(holds_gradients);
        events.push_back("accumulate " + std::to_string(samples.size()));
        batches.push_back(samples);
        losses.push_back(loss);
        for (const Sample& s : samples) poisoned = poisoned || s.tokens.back() == poison;
        holds_gradients = true;
        StepStats stats;
        stats.tokens = static_cast<std::int64_t>(samples.size());
        for (const Sample& s : samples) {
            if (loss.on_policy) stats.logprobs.emplace_back(s.tokens.size(), -1.0f);
        }
        return stats;
    }
    double apply(double) override {
        if (poisoned) return std::numeric_limits<double>::infinity();
        holds_gradients = false;
        ++applied;
        return 0.25;
    }
    void discard_gradients() override { holds_gradients = poisoned = false; }
    std::vector<NonFiniteTensor> non_finite_gradients() override {
        if (!poisoned) return {};
        return {{"w", 1, 1, {0}}};
    }
    std::vector<NonFiniteTensor> non_finite_weights() override { return weights; }
    void reset_optimizer() override { events.push_back("reset"); }
    void set_reference() override {
        events.push_back("set reference");
        reference = true;
    }
    bool has_reference() const override { return reference; }

    std::vector<std::string> events;
    std::vector<std::vector<Sample>> batches;
    std::vector<LossOptions> losses;
    float temperature = 0;
    bool reference = false;
    std::int32_t poison = -1;  // a sample that ends with it has an infinite gradient
    bool poisoned = false, holds_gradients = false;
    int applied = 0;
    std::vector<NonFiniteTensor> weights;
};

struct Case {
    explicit Case(const std::string& toml = "") {
        config::Schema schema = schema_of(config);
        schema.read_text("[grpo]\nprompts = 2\nsamples = 2\nupdates = 2\nwarmup = 0\n" + toml, "q.toml");
        for (int i = 0; i < 4; ++i) {
            rollout.prompts.push_back({7, 8});
            Completion completion;
            completion.tokens = {1, 2, i};
            completion.logprobs = {-1.0f, -1.0f, -1.25f};
            rollout.completions.push_back(completion);
            names.push_back("p.jsonl:" + std::to_string(i / 2 + 1));
        }
        rollout.rewards = {1, 0, 0.5f, 0.5f};
    }
    UpdateResult run(std::int64_t step = 0) {
        Updater updater(config, learner);
        updater.begin();
        return updater.step(step, rollout, names);
    }

    RunConfig config;
    UpdateLearner learner;
    Rollout rollout;
    std::vector<std::string> names;
};

TEST(Update, GrpoScoresThenUpdatesByParts) {
    Case c;
    const UpdateResult result = c.run();
    EXPECT_THAT(c.learner.events, ElementsAre("logprobs", "accumulate 2", "accumulate 2"));
    EXPECT_EQ(result.logprob_max_abs_diff, 0.25);
    EXPECT_DOUBLE_EQ(result.logprob_mean_abs_diff, 0.25 / 3);  // one token of three
    EXPECT_EQ(result.stats.grad_norm, 0.25);
    EXPECT_EQ(result.tokens, 4);
    std::set<std::int32_t> seen;
    for (const auto& batch : c.learner.batches) {
        for (const Sample& s : batch) {
            EXPECT_THAT(s.target_mask, ElementsAre(0, 0, 1, 1, 1));
            EXPECT_THAT(s.rollout_logprobs, ElementsAre(0, 0, -1.0f, -1.0f, -1.25f));
            EXPECT_EQ(s.old_logprobs, std::vector<float>(5, -1.0f));
            EXPECT_TRUE(s.reference_logprobs.empty());
            EXPECT_TRUE(s.values.empty());
            const auto which = s.tokens.back();
            EXPECT_NEAR(s.advantages.back(), which == 0 ? 0.7071f : which == 1 ? -0.7071f : 0.0f, 1e-4);
            seen.insert(which);
        }
    }
    EXPECT_EQ(seen.size(), 4u);  // each once
}

TEST(Update, AnOnlyUpdateIsItsOwnScoring) {
    Case c;
    c.config.grpo.updates = 1;
    const UpdateResult result = c.run();
    EXPECT_THAT(c.learner.events, ElementsAre("accumulate 4"));
    EXPECT_TRUE(c.learner.losses[0].on_policy);
    EXPECT_EQ(result.logprob_max_abs_diff, 0.25);
    EXPECT_DOUBLE_EQ(result.logprob_mean_abs_diff, 0.25 / 3);
    EXPECT_EQ(result.tokens, 4);
    for (const Sample& s : c.learner.batches[0]) EXPECT_TRUE(s.old_logprobs.empty());
    Case reference("[loss]\nkl_coef = 0.1");
    reference.config.grpo.updates = 1;
    reference.run();
    EXPECT_THAT(reference.learner.events, ElementsAre("set reference", "reference", "accumulate 4"));
}

TEST(Update, WhatNeedsScoresBeforehandGetsThem) {
    for (const char* toml : {"epochs = 2", "[loss]\nalgorithm = 'gspo'", "[loss]\nopsm_delta = 0.1",
                             "[loss]\nratio = 'sequence'", "[loss]\nkl_coef = 0.1\nkl_in = 'reward'",
                             "[loss]\nalgorithm = 'ppo'"}) {
        SCOPED_TRACE(toml);
        Case c(toml);
        c.config.grpo.updates = 1;
        c.run();
        EXPECT_THAT(c.learner.events, testing::Contains(testing::AnyOf("logprobs", "values")));
        EXPECT_FALSE(c.learner.losses[0].on_policy);
        EXPECT_FALSE(c.learner.batches[0][0].old_logprobs.empty());
    }
}

TEST(Update, EachPassTakesEverySampleInAnOrderOfItsOwn) {
    Case once, thrice("epochs = 3");
    once.run();
    const UpdateResult result = thrice.run();
    EXPECT_EQ(result.tokens, 12);
    ASSERT_EQ(thrice.learner.batches.size(), 6u);
    std::vector<std::vector<std::int32_t>> orders(3);
    for (std::size_t i = 0; i < 6; ++i) {
        for (const Sample& s : thrice.learner.batches[i]) orders[i / 2].push_back(s.tokens.back());
        if (i >= 2) continue;  // the first pass is that of a run with one
        for (std::size_t j = 0; j < 2; ++j)
            EXPECT_EQ(thrice.learner.batches[i][j].tokens, once.learner.batches[i][j].tokens);
    }
    for (const auto& order : orders) EXPECT_THAT(order, testing::UnorderedElementsAre(0, 1, 2, 3));
    EXPECT_TRUE(orders[1] != orders[0] || orders[2] != orders[0]);
}

TEST(Update, PpoAsksForValuesAndHandsOutReturns) {
    Case c("temperature = 0.5\n[loss]\nalgorithm = 'ppo'\nwhiten = 'no'");
    c.run();
    EXPECT_THAT(c.learner.events, ElementsAre("values", "accumulate 2", "accumulate 2"));
    EXPECT_EQ(c.learner.temperature, 0.5f);
    EXPECT_EQ(c.learner.losses[0].value_coef, 1.0f);
    EXPECT_EQ(c.learner.losses[0].temperature, 0.5f);
    for (const Sample& s : c.learner.batches[0]) {
        EXPECT_EQ(s.values, std::vector<float>(5, 0.5f));
        const float reward = c.rollout.rewards[static_cast<std::size_t>(s.tokens.back())];
        EXPECT_THAT(s.returns, ElementsAre(0, 0, reward, reward, reward));  // gamma and lambda are 1
        EXPECT_FLOAT_EQ(s.advantages[2], reward - 0.5f);
    }
}

TEST(Update, AReferenceIsMadeOnceScoredEachStepAndRefreshedWhenDue) {
    Case c("[loss]\nkl_coef = 0.1\nreference_every = 2");
    Updater updater(c.config, c.learner);
    updater.begin();
    for (std::int64_t step = 0; step < 3; ++step) updater.step(step, c.rollout, c.names);
    EXPECT_THAT(c.learner.events,
                ElementsAre("set reference",                                          //
                            "logprobs", "reference", "accumulate 2", "accumulate 2",  //
                            "logprobs", "reference", "accumulate 2", "accumulate 2",  //
                            "set reference", "logprobs", "reference", "accumulate 2", "accumulate 2"));
    EXPECT_EQ(c.learner.batches[0][0].reference_logprobs, std::vector<float>(5, -1.5f));
    Case loaded("[loss]\nkl_coef = 0.1");
    loaded.learner.reference = true;  // from a directory
    loaded.run();
    EXPECT_EQ(loaded.learner.events[0], "logprobs");
}

TEST(Update, KlInTheRewardIsTakenOffIt) {
    Case c("[loss]\nalgorithm = 'reinforce++'\nwhiten = 'no'\nkl = 'k1'\nkl_coef = 0.1\nkl_in = 'reward'");
    c.run();
    EXPECT_EQ(c.learner.losses[0].kl_coef, 0.0f);
    for (const Sample& s : c.learner.batches[0]) {  // log-ratio 0.5 at each of three tokens
        const float reward = c.rollout.rewards[static_cast<std::size_t>(s.tokens.back())];
        EXPECT_NEAR(s.advantages[2], reward - 0.15f, 1e-6);
        EXPECT_NEAR(s.advantages[4], reward - 0.05f, 1e-6);
    }
}

TEST(Update, MetricsSayWhatIsOn) {
    const auto keys = [](const std::string& toml) {
        Case c(toml);
        std::set<std::string> result;
        const nlohmann::ordered_json metrics = metrics_of(c.run(), c.config);
        for (const auto& [key, value] : metrics.items()) result.insert(key);
        return result;
    };
    const auto plain = keys("");
    for (const char* key : {"loss", "grad_norm", "lr", "clip_fraction", "kl", "entropy", "ratio_max"})
        EXPECT_TRUE(plain.contains(key)) << key;
    for (const char* key : {"reference_kl", "value_loss", "importance_mean", "dropped_fraction"})
        EXPECT_FALSE(plain.contains(key)) << key;
    const auto all =
        keys("[loss]\nalgorithm = 'ppo'\nkl_coef = 0.1\ntis = 'clamp'\nopsm_delta = 0.1\ndual_clip = 3");
    for (const char* key :
         {"reference_kl", "value_loss", "importance_mean", "dropped_fraction", "dual_clip_fraction"})
        EXPECT_TRUE(all.contains(key)) << key;
}

// --- what is infinite or NaN: nothing of it is learned from, and it is named

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Update, ALogprobThatIsNoNumberLeavesTheStepOut) {
    Case c;
    c.rollout.completions[1].logprobs[0] = kNan;
    c.learner.weights = {{"lm_head.weight", 3, 2, {7, 9}}};
    EXPECT_THAT(c.run().left_out,
                ElementsAre("samples: p.jsonl:1 (the engine's log-prob nan); weights that are "
                            "not finite: lm_head.weight (3 elements in rows 7, 9)"));
    EXPECT_THAT(c.learner.events, ElementsAre("logprobs"));
}

TEST(Update, ARewardThatIsNoNumberLeavesTheStepOut) {
    Case c;
    for (const std::size_t i : {2u, 3u}) {
        c.rollout.rewards[i] = kNan;
        c.rollout.faults.emplace_back(i, SampleFault{"p.jsonl:2", "reward nan"});
    }
    EXPECT_THAT(c.run().left_out, ElementsAre("samples: p.jsonl:2 (reward nan; 2 samples)"));
    EXPECT_THAT(c.learner.events, ElementsAre());
}

TEST(Update, AdvantagesThatOverflowLeaveTheStepOut) {
    Case c("[loss]\nalgorithm = 'rloo'");
    c.rollout.rewards = {3e38f, -3e38f, 0, 0};
    EXPECT_THAT(c.run().left_out, ElementsAre("samples: p.jsonl:1 (advantage inf; 2 samples)"));
    EXPECT_THAT(c.learner.events, ElementsAre("logprobs"));
}

TEST(Update, AGradientThatIsNotFiniteIsNotAppliedAndTracedToItsSamples) {
    for (const bool skip : {false, true}) {
        Case c(skip ? "[train]\nnon_finite = 'skip'" : "");
        c.learner.poison = 2;  // the last token of the third sample
        const UpdateResult result = c.run();
        ASSERT_EQ(result.left_out.size(), 1u);
        EXPECT_EQ(
            result.left_out[0],
            "the gradient norm is inf; samples: p.jsonl:2 (its gradient); gradients: w (1 element in row 0)");
        EXPECT_FALSE(c.learner.holds_gradients);
        const bool first =
            c.learner.batches[0][0].tokens.back() == 2 || c.learner.batches[0][1].tokens.back() == 2;
        EXPECT_EQ(c.learner.applied, !skip && first ? 0 : 1);  // the other half
        EXPECT_EQ(result.tokens, c.learner.applied * 2);
        EXPECT_EQ(std::isfinite(result.stats.loss), c.learner.applied == 1);
    }
}

}  // namespace
}  // namespace tandem::trainer
