// The order of the loop's verbs, what it hands learner and engine, what it counts.
#include <gmock/gmock.h>

#include "tests/unit/trainer/loop/pretence.h"
#include "trainer/data/sum4.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using testing::ElementsAre;

TEST(Loop, GoesThroughItsVerbsInOrder) {
    Pretence r;
    r.run();
    EXPECT_THAT(r.world.events,
                ElementsAre("accumulate 4", "apply", "accumulate 4", "apply", "reset", "sync 1",          //
                            "logprobs 20", "accumulate 10", "apply", "accumulate 10", "apply", "sync 2",  //
                            "logprobs 20", "accumulate 10", "apply", "accumulate 10", "apply", "sync 3",  //
                            "logprobs 20", "accumulate 10", "apply", "accumulate 10", "apply", "sync 4"));
    EXPECT_EQ(r.result.weight_version, 4);
    EXPECT_TRUE(r.result.weights_match);
    EXPECT_EQ(r.result.sft_steps, 2);
    EXPECT_EQ(r.result.grpo_steps, 3);
    EXPECT_EQ(r.result.logprob_max_abs_diff, 0.0);
    // Skill 30 after the warm start, 90 after three steps of two updates.
    EXPECT_NEAR(r.result.first.sampled->reward, 0.3, 0.12);
    EXPECT_NEAR(r.result.last.sampled->reward, 0.9, 0.1);
    EXPECT_THAT(r.learner.rates,
                ElementsAre(testing::DoubleNear(3e-3, 1e-9), testing::Gt(3e-3),  // warm-up over two steps
                            1e-3, 1e-3, testing::DoubleNear(7e-4, 1e-9), testing::DoubleNear(7e-4, 1e-9),
                            testing::DoubleNear(4e-4, 1e-9), testing::DoubleNear(4e-4, 1e-9)));
}

TEST(Loop, TheWarmStartTeachesAnswersOnly) {
    Pretence r;
    r.run();
    const Sum4 task(100, 0);
    for (const Sample& sample : r.learner.batches[0]) {
        const std::span<const std::int32_t> tokens(sample.tokens);
        EXPECT_EQ(task.reward(tokens.first(8), tokens.subspan(8)), 1.0);  // an honest teacher
        for (std::size_t i = 0; i < sample.tokens.size(); ++i)
            EXPECT_EQ(sample.target_mask[i], i < 8 ? 0 : 1);
        EXPECT_EQ(sample.tokens.back(), Sum4::kEos);
    }
}

TEST(Loop, EverySampleIsUsedOnceWithItsAdvantage) {
    Pretence r;
    r.run();
    for (const std::size_t step : {2u, 4u, 6u}) {
        std::vector<Sample> all = r.learner.batches[step];
        all.insert(all.end(), r.learner.batches[step + 1].begin(), r.learner.batches[step + 1].end());
        ASSERT_EQ(all.size(), 20u);
        const Sum4 task(0, 0);
        std::map<Tokens, std::pair<int, double>> groups;  // prompt: samples, sum of advantages
        for (const Sample& sample : all) {
            const Tokens prompt(sample.tokens.begin(), sample.tokens.begin() + 8);
            const Tokens answer(sample.tokens.begin() + 8, sample.tokens.end());
            ASSERT_EQ(sample.advantages.size(), sample.tokens.size());
            ASSERT_EQ(sample.old_logprobs, std::vector<float>(sample.tokens.size(), -1.0f));
            const float advantage = sample.advantages.back();
            EXPECT_TRUE(advantage == 0 || (advantage > 0) == (task.reward(prompt, answer) > 0));
            ++groups[prompt].first;
            groups[prompt].second += advantage;
        }
        for (const auto& [prompt, group] : groups) {
            EXPECT_EQ(group.first % 4, 0);
            EXPECT_NEAR(group.second, 0, 1e-5);
        }
    }
}

TEST(Loop, RecordsALineAStep) {
    Pretence r;
    r.config.grpo.evaluate_every = 2;
    r.run();
    std::string phases;
    for (const json& line : r.metrics) phases += line["phase"].get<std::string>()[0];
    EXPECT_EQ(phases,
              "ssegg"
              "ege");
    EXPECT_EQ(r.metrics[3]["weight_version"], 2);
    EXPECT_EQ(r.metrics[3]["sync_ms"]["load"], 0.4);
    EXPECT_EQ(r.metrics[3]["sync_ms"]["finish"], 0.6);
    EXPECT_EQ(r.metrics[3]["sync_ms"]["pack"], 0.7);
    EXPECT_EQ(r.metrics[3]["grad_norm"], 0.5);
    EXPECT_TRUE(r.metrics[3]["memory_peak_bytes"].is_object());
    EXPECT_EQ(r.metrics[3]["staleness"], 0);
    EXPECT_LE(r.metrics[3]["response_length_max"], 3);
    for (const char* key :
         {"reward_std", "reward_min", "reward_max", "groups_without_signal", "truncated_fraction",
          "response_length_mean", "generate_tokens_per_second", "train_tokens_per_second"}) {
        EXPECT_TRUE(r.metrics[3][key].is_number()) << key;
    }
    EXPECT_EQ(r.metrics[2]["pass_at_1"], r.metrics[2]["reward"]);  // rewards are 0 or 1

    const auto summary = summary_of(r.config, r.result);
    EXPECT_EQ(summary["sync_ms_median"], 5.0);  // of 2, 4, 6, 8
    EXPECT_EQ(summary["speed_of_light_ratio"], 5.0);
    EXPECT_EQ(summary["weight_version"], 4);
    for (const char* key : {"steps", "world_size", "mesh", "reward_first", "reward_last", "weights_match",
                            "sync_phase_ms", "logprob_max_abs_diff", "seconds", "seed", "version"}) {
        EXPECT_TRUE(summary.contains(key)) << key;
    }
}

TEST(Loop, KeepsSomeOfWhatTheModelSays) {
    Pretence r;
    r.config.data.keep_samples = 3;
    r.run();
    ASSERT_EQ(r.samples.size(), 3u * 5);  // three steps, two evaluations
    EXPECT_EQ(r.samples[0]["phase"], "eval");
    EXPECT_EQ(r.samples[3]["phase"], "grpo");
    EXPECT_EQ(r.samples[3]["step"], 1);
    for (const json& sample : r.samples) {
        EXPECT_EQ(sample["prompt"].get<std::string>().size(), 8u);
        EXPECT_EQ(sample["completion"] == sample["expected"], sample["reward"] == 1);
    }
    EXPECT_NE(r.samples[3]["prompt"], r.samples[5]["prompt"]);  // spread over the batch
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(r.samples[i]["prompt"], r.samples[12 + i]["prompt"]);
    Pretence none;
    none.config.data.keep_samples = 0;
    none.run();
    EXPECT_TRUE(none.samples.empty());
}

TEST(Loop, GreedyFiguresAreEnough) {
    Pretence r;
    r.config.data.held_out_samples = 0;
    r.run();
    EXPECT_FALSE(r.result.first.sampled.has_value());
    EXPECT_FALSE(r.metrics[2].contains("reward"));
    const auto summary = summary_of(r.config, r.result);
    EXPECT_FALSE(summary.contains("reward_first"));
    EXPECT_EQ(summary["greedy_first"], r.result.first.greedy.reward);
}

TEST(Loop, SeveralSamplesGivePassAtK) {
    Pretence r;
    r.config.data.held_out_samples = 4;
    r.run();
    const HeldOutScores& scores = *r.result.first.sampled;
    EXPECT_NEAR(scores.pass_at_1, 0.3, 0.1);
    EXPECT_NEAR(scores.pass_at_k, 1 - 0.7 * 0.7 * 0.7 * 0.7, 0.12);
    const auto summary = summary_of(r.config, r.result);
    EXPECT_EQ(summary["pass_at_4_first"], scores.pass_at_k);
}

TEST(Loop, ReportsHowFarTheEngineIsOff) {
    Pretence r;
    r.world.logprob_error = 0.25f;
    r.run();
    EXPECT_EQ(r.result.logprob_max_abs_diff, 0.25);
}

TEST(Loop, WithoutReinforcementTheFirstRewardIsTheLast) {
    Pretence r;
    r.config.grpo.steps = 0;
    r.run();
    EXPECT_EQ(r.result.first.sampled->reward, r.result.last.sampled->reward);
    EXPECT_EQ(r.result.weight_version, 1);
}

TEST(Loop, EqualSeedsDrawEqualBatches) {
    Pretence a, b, c;
    c.config.run.seed = 1;
    a.run();
    b.run();
    c.run();
    ASSERT_EQ(a.learner.batches.size(), b.learner.batches.size());
    for (std::size_t i = 0; i < a.learner.batches.size(); ++i) {
        for (std::size_t j = 0; j < a.learner.batches[i].size(); ++j) {
            EXPECT_EQ(a.learner.batches[i][j].tokens, b.learner.batches[i][j].tokens);
        }
    }
    EXPECT_NE(a.learner.batches[0][0].tokens, c.learner.batches[0][0].tokens);
}

}  // namespace
}  // namespace tandem::trainer
