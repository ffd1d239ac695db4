// The loop with a learner and an engine that are pretended: the order of its verbs, what it hands them, what
// it counts.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/http/server.h"
#include "trainer/data/sum4.h"
#include "trainer/loop/loop.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using testing::ElementsAre;

// What both sides of the pretence share: the weights are one number, how many of 100 seeds are answered
// rightly.
struct World {
    std::vector<std::string> events;
    int skill = 10;        // the learner's
    int served_skill = 0;  // the engine's, since the last publish
    std::int64_t version = 0;
    float logprob_error = 0;
    bool training = false;  // the engine may sleep: from before_training to publish
};

class FakeEngine {
  public:
    explicit FakeEngine(World& world)
        : server_({"127.0.0.1:0", std::size_t{8} << 20, std::chrono::milliseconds(5000)}) {
        server_.route("POST", "/generate", [&world](const http::Request& request, http::Responder respond) {
            EXPECT_FALSE(world.training) << "an engine that sleeps was asked";
            const Sum4 task(0, 0);
            Random teacher(0, Purpose::sft);
            const json body = json::parse(request.body);
            json answers = json::array();
            for (std::size_t i = 0; i < body["input_ids"].size(); ++i) {
                const auto prompt = body["input_ids"][i].get<Tokens>();
                const auto& params = body["sampling_params"][i];
                const bool right = params["sampling_seed"].get<std::int64_t>() % 100 < world.served_skill;
                const Tokens tokens = right ? task.teach(prompt, teacher) : Tokens{Sum4::kEos};
                json logprobs = json::array();
                for (const auto token : tokens) logprobs.push_back({-1.0, token, nullptr});
                answers.push_back({{"output_ids", tokens},
                                   {"meta_info",
                                    {{"output_token_logprobs", logprobs},
                                     {"weight_version", std::to_string(world.version)}}}});
            }
            respond.send(200, answers);
        });
        server_.start();
    }
    std::string url() const { return server_.url(); }

  private:
    http::Server server_;
};

class FakeLearner final : public Learner {
  public:
    explicit FakeLearner(World& world) : world_(world) {}
    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override {
        EXPECT_TRUE(world_.training);
        world_.events.push_back((options.reference ? "reference " : "logprobs ") +
                                std::to_string(samples.size()));
        Scores result;
        for (const Sample& s : samples)
            result.logprobs.emplace_back(s.tokens.size(), -1.0f - world_.logprob_error);
        return result;
    }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override {
        EXPECT_TRUE(world_.training);
        world_.events.push_back("accumulate " + std::to_string(samples.size()));
        batches.push_back(samples);
        losses.push_back(loss);
        StepStats stats;
        stats.loss = 0.5;
        for (const Sample& s : samples) stats.tokens += static_cast<std::int64_t>(s.tokens.size());
        return stats;
    }
    double apply(double lr) override {
        const int step = steps++;
        if (step >= bad_from && step < bad_until) return std::numeric_limits<double>::quiet_NaN();
        world_.events.push_back("apply");
        rates.push_back(lr);
        world_.skill += 10;
        return 0.5;
    }
    void reset_optimizer() override { world_.events.push_back("reset"); }
    void discard_gradients() override { world_.events.push_back("discard"); }
    std::vector<NonFiniteTensor> non_finite_gradients() override {
        if (steps <= bad_from || steps > bad_until) return {};  // steps: applied or tried
        return {{"w", 1, 1, {0}}};
    }
    std::vector<NonFiniteTensor> non_finite_weights() override { return {}; }
    void set_reference() override {
        world_.events.push_back("set reference");
        has_reference_ = true;
    }
    bool has_reference() const override { return has_reference_; }

    std::vector<std::vector<Sample>> batches;
    std::vector<LossOptions> losses;
    std::vector<double> rates;
    int steps = 0, bad_from = 1 << 30,
        bad_until = 1 << 30;  // calls of apply() whose gradients are not finite

  private:
    World& world_;
    bool has_reference_ = false;
};

class FakeHost final : public LoopHost {
  public:
    explicit FakeHost(World& world) : world_(world) {}
    void before_training() override { world_.training = true; }
    SyncTimes publish(std::int64_t version) override {
        world_.training = false;
        world_.events.push_back("sync " + std::to_string(version));
        world_.served_skill = world_.skill;
        world_.version = version;
        return {.total = 2.0 * static_cast<double>(version),
                .prepare = 0.05,
                .pause = 0.1,
                .gather = 0.2,
                .copy = 0.3,
                .load = 0.4,
                .resume = 0.5,
                .finish = 0.6,
                .pack = 0.7,
                .speed_of_light = 1.0};
    }
    std::optional<bool> weights_match() override { return world_.served_skill == world_.skill; }
    void write_checkpoint(const LoopState&) override {}

  private:
    World& world_;
};

struct Pretence {
    World world;
    FakeEngine engine{world};
    FakeLearner learner{world};
    FakeHost host{world};
    RunConfig config;
    LoopResult result;
    std::vector<json> metrics;
    std::vector<json> samples;

    Pretence() {
        config.sft.steps = 2;
        config.sft.batch = 4;
        config.sft.warmup = 2;
        config.grpo.steps = 3;
        config.grpo.prompts = 5;
        config.grpo.samples = 4;
        config.grpo.updates = 2;
        config.grpo.warmup = 1;
        config.grpo.evaluate_every = 0;
        config.data.held_out = 100;
        config.data.teacher_noise = 0;
    }

    void run() {
        const auto world_communicator = comm::solo();
        const Sum4 task(config.data.held_out, config.data.teacher_noise);
        Rollouts rollouts(
            *world_communicator,
            make_rollout_client(engine.url(), {.deadline = std::chrono::seconds(5), .batch = 64}));
        const auto folder =
            std::filesystem::temp_directory_path() / ("tandem_loop_test." + std::to_string(getpid()));
        std::filesystem::create_directories(folder);
        const auto file = folder / "metrics.jsonl";
        {
            Recorder recorder(file.string());
            result = run_loop(config, {*world_communicator, task, learner, rollouts, host, recorder});
        }
        std::ifstream in(file);
        for (std::string line; std::getline(in, line);) metrics.push_back(json::parse(line));
        std::ifstream in_samples(folder / "samples.jsonl");
        for (std::string line; std::getline(in_samples, line);) samples.push_back(json::parse(line));
        std::filesystem::remove_all(folder);
    }
};

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

TEST(Loop, RefusesLogprobsThatAreNoNumbers) {
    Pretence r;
    r.world.logprob_error = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(r.run(), Error);
}

TEST(Loop, AWarmStartThatIsNotFiniteStopsByName) {
    Pretence r;
    r.learner.bad_from = 1;
    std::string message;
    try {
        r.run();
    } catch (const Error& error) {
        message = error.what();
    }
    EXPECT_THAT(message,
                testing::StartsWith("step 2 of the warm start is not finite: the gradient norm is nan; "
                                    ""));
    EXPECT_THAT(message, testing::HasSubstr(
                             ". Nothing of it was applied, saved or published; train.non_finite = skip"));
    EXPECT_EQ(r.learner.rates.size(), 1u);
    EXPECT_THAT(r.world.events, testing::Not(testing::Contains("sync 1")));
}

TEST(Loop, StepsThatAreNotFiniteAreLeftOutAndCounted) {
    Pretence r;
    r.config.train.non_finite = "skip";
    r.config.sft.steps = 4;
    r.learner.bad_from = 1;
    r.learner.bad_until = 3;
    r.run();
    EXPECT_EQ(r.result.skipped_steps, 2);
    EXPECT_EQ(r.result.skipped_in_a_row, 0);
    EXPECT_EQ(summary_of(r.config, r.result)["skipped_steps"], 2);
    EXPECT_FALSE(r.metrics[0].contains("skipped"));
    EXPECT_EQ(r.metrics[1]["skipped"], 1);
    EXPECT_TRUE(r.metrics[1]["grad_norm"].is_null());
    EXPECT_THAT(r.metrics[1]["non_finite"].get<std::string>(),
                testing::HasSubstr("the gradient norm is nan"));
    EXPECT_EQ(r.learner.rates.size(), 2u + 6u);  // of the warm start, and of three steps
    LoopState state;
    state.result = r.result;
    auto saved = to_json(state);
    EXPECT_EQ(loop_state_from_json(saved).result.skipped_steps, 2);
    EXPECT_EQ(loop_state_from_json(saved).result.syncs.back().pack, 0.7);
    saved.erase("skipped_steps");  // as earlier versions wrote it
    saved.erase("skipped_in_a_row");
    for (auto& times : saved["syncs"]) times.erase(9), times.erase(8);
    const LoopResult before = loop_state_from_json(saved).result;
    EXPECT_EQ(before.skipped_steps, 0);
    EXPECT_EQ(before.syncs.back().speed_of_light, 1.0);
    EXPECT_EQ(before.syncs.back().pack, 0.0);
}

TEST(Loop, TenStepsInARowThatAreNotFiniteEndTheRun) {
    Pretence r;
    r.config.train.non_finite = "skip";
    r.config.sft.steps = 20;
    r.learner.bad_from = 3;
    EXPECT_THROW(r.run(), Error);
    EXPECT_EQ(r.learner.steps, 13);
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
