// The loop with a learner and an engine that are pretended.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/http/server.h"
#include "trainer/data/sum4.h"
#include "trainer/loop/loop.h"

namespace tandem::trainer {

// What both sides of the pretence share: the weights are one number, how many of 100 seeds are answered
// rightly.
struct PretendedWorld {
    std::vector<std::string> events;
    int skill = 10;        // the learner's
    int served_skill = 0;  // the engine's, since the last publish
    std::int64_t version = 0;
    float logprob_error = 0;
    bool training = false;  // the engine may sleep: from before_training to publish
};

class PretendedEngine {
  public:
    explicit PretendedEngine(PretendedWorld& world)
        : server_({"127.0.0.1:0", std::size_t{8} << 20, std::chrono::milliseconds(5000)}) {
        server_.route("POST", "/generate", [&world](const http::Request& request, http::Responder respond) {
            EXPECT_FALSE(world.training) << "an engine that sleeps was asked";
            const Sum4 task(0, 0);
            Random teacher(0, Purpose::sft);
            const nlohmann::json body = nlohmann::json::parse(request.body);
            nlohmann::json answers = nlohmann::json::array();
            for (std::size_t i = 0; i < body["input_ids"].size(); ++i) {
                const auto prompt = body["input_ids"][i].get<Tokens>();
                const auto& params = body["sampling_params"][i];
                const bool right = params["sampling_seed"].get<std::int64_t>() % 100 < world.served_skill;
                const Tokens tokens = right ? task.teach(prompt, teacher) : Tokens{Sum4::kEos};
                nlohmann::json logprobs = nlohmann::json::array();
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

class PretendedLearner final : public Learner {
  public:
    explicit PretendedLearner(PretendedWorld& world) : world_(world) {}
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
    PretendedWorld& world_;
    bool has_reference_ = false;
};

class PretendedHost final : public LoopHost {
  public:
    explicit PretendedHost(PretendedWorld& world) : world_(world) {}
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
    PretendedWorld& world_;
};

struct Pretence {
    PretendedWorld world;
    PretendedEngine engine{world};
    PretendedLearner learner{world};
    PretendedHost host{world};
    RunConfig config;
    LoopResult result;
    std::vector<nlohmann::json> metrics;
    std::vector<nlohmann::json> samples;

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
            make_rollout_client(engine.url(), {.deadline = std::chrono::seconds(60), .batch = 64}));
        const auto folder =
            std::filesystem::temp_directory_path() / ("tandem_loop_test." + std::to_string(getpid()));
        std::filesystem::create_directories(folder);
        const auto file = folder / "metrics.jsonl";
        {
            Recorder recorder(file.string());
            result = run_loop(config, {*world_communicator, task, learner, rollouts, host, recorder});
        }
        std::ifstream in(file);
        for (std::string line; std::getline(in, line);) metrics.push_back(nlohmann::json::parse(line));
        std::ifstream in_samples(folder / "samples.jsonl");
        for (std::string line; std::getline(in_samples, line);)
            samples.push_back(nlohmann::json::parse(line));
        std::filesystem::remove_all(folder);
    }
};

}  // namespace tandem::trainer
