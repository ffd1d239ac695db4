// Whole runs of tandem-train with a vLLM server as the engine: a stand-in that loads what it is pushed and samples with
// it, servers that fail in the middle, and configurations that do not go with one.
#include <algorithm>
#include <csignal>

#include "tests/multiproc/app/others_run.h"
#include "tests/support/vllm_rollouts.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class VllmRun : public OthersRun {
  protected:
    std::unique_ptr<VllmStandIn> serve(bool scale_out) { return serve(scale_out, {.model = model()}); }
    std::unique_ptr<VllmStandIn> serve(bool scale_out, VllmStandIn::Options options) {
        options.more_routes = [this, scale_out](VllmStandIn& server) {
            add_rollout_routes(server, {model(), scratch(), scale_out});
        };
        return std::make_unique<VllmStandIn>(options);
    }
};

TEST_F(VllmRun, EitherRouteTeachesTheServersOwnWeights) {
    for (const bool scale_out : {true, false}) {
        SCOPED_TRACE(scale_out);
        const auto server = serve(scale_out);
        Program train(run(server->url()));
        ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
        EXPECT_THAT(train.out(), testing::Not(HasSubstr("hold equal weights")));
        EXPECT_THAT(train.err(), HasSubstr(scale_out ? "by /inference/v1/generate" : "by /v1/completions"));
        EXPECT_THAT(train.err(), HasSubstr("architecture is not compared with this run's model"));
        EXPECT_EQ(server->weight_version(), "4");  // the start, and three steps
        EXPECT_THAT(server->violations(), IsEmpty());
        EXPECT_EQ(server->weights(), bytes_of_directory(runs() + "/tiny/checkpoint"));

        expect_sampled_by_what_was_pushed();
    }
}

TEST_F(VllmRun, TruncatedImportanceSamplingCanBeSwitchedOff) {
    const auto server = serve(true);
    Program train(run(server->url(), {"loss.tis=off", "grpo.steps=1"}));
    ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
    for (const nlohmann::json& line : timeless_metrics(runs() + "/tiny")) {
        EXPECT_FALSE(line.contains("importance_mean"));
        EXPECT_EQ(line.contains("logprob_mean_abs_diff"), line["phase"] == "grpo");
    }
}

// Its weights are gone by then, with "all": what it samples with afterwards can only be what was pushed.
TEST_F(VllmRun, ItsMemorySleepsWhileTheTrainerComputes) {
    for (const std::string level : {"kv_cache", "all"}) {
        SCOPED_TRACE(level);
        const auto server = serve(true, {.model = model(), .sleep_mode = true});
        Program train(run(server->url(), {"memory.engine_sleep=" + level}));
        ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
        EXPECT_THAT(server->violations(), IsEmpty());
        EXPECT_EQ(server->weight_version(), "4");
        EXPECT_FALSE(server->paused());
        EXPECT_THAT(server->asleep(), IsEmpty());
        EXPECT_EQ(server->weights(), bytes_of_directory(runs() + "/tiny/checkpoint"));
        const auto calls = server->calls();
        const auto count = [&](const char* call) { return std::count(calls.begin(), calls.end(), call); };
        EXPECT_EQ(count("POST /release_kv_cache_memory"), level == "all" ? 0 : 3);
        EXPECT_EQ(count("POST /sleep"), level == "all" ? 3 : 0);
        EXPECT_EQ(count("POST /resume"), 1);  // after the first push; later ones are resumed by their waking
        expect_sampled_by_what_was_pushed();
    }
}

TEST_F(VllmRun, AServerThatAKilledRunLeftAsleepIsWoken) {
    for (const std::string level : {"kv_cache", "all"}) {
        SCOPED_TRACE(level);
        std::unique_ptr<VllmStandIn> server;
        for (int kills = 0; kills < 20; ++kills) {  // one may hit it while it wakes the server
            server = serve(true, {.model = model(), .sleep_mode = true});
            Program train(run(server->url(), {"memory.engine_sleep=" + level, "grpo.steps=100"}));
            ASSERT_TRUE(eventually([&] { return !server->asleep().empty(); }));
            train.kill(SIGKILL);
            train.wait();
            std::filesystem::remove_all(runs());
            if (!server->asleep().empty()) break;
        }
        ASSERT_THAT(server->asleep(), testing::Not(IsEmpty()));
        Program train(run(server->url(), {"memory.engine_sleep=" + level}));
        ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
        EXPECT_THAT(train.err(), HasSubstr("was left asleep"));
        EXPECT_THAT(server->violations(), IsEmpty());
        EXPECT_FALSE(server->paused());
        EXPECT_EQ(server->weights(), bytes_of_directory(runs() + "/tiny/checkpoint"));
    }
}

TEST_F(VllmRun, AServerThatCannotSleepIsToldHowToStart) {
    for (const auto& [options, words] : std::vector<std::pair<VllmStandIn::Options, std::string>>{
             {{.model = model(), .sleep_mode = false}, "--enable-sleep-mode"},
             {{.model = model(), .sleep_mode = true, .statistics = false}, "--disable-log-stats"}}) {
        const auto server = serve(true, options);
        Program train(run(server->url(), {"memory.engine_sleep=kv_cache"}));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), HasSubstr(words));
        EXPECT_FALSE(server->paused());
    }
}

TEST_F(VllmRun, AServerThatDoesNotSleepOrWakeIsNamed) {
    for (const char* route : {"/release_kv_cache_memory", "/wake_up", "/sleep"}) {
        SCOPED_TRACE(route);
        const auto server = serve(true, {.model = model(), .sleep_mode = true});
        server->set_failure(route, 500);
        const std::string level = std::string_view(route) == "/sleep" ? "all" : "kv_cache";
        Program train(run(server->url(), {"memory.engine_sleep=" + level}));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), AllOf(HasSubstr(server->address()), HasSubstr(route), HasSubstr("500")));
        EXPECT_EQ(server->paused(), std::string_view(route) == "/wake_up") << "it had kept its cache";
    }
}

TEST_F(VllmRun, AServerThatFailsIsNamed) {
    {
        const auto server = serve(true);
        server->set_failure("/inference/v1/generate", 500);
        Program train(run(server->url()));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), AllOf(HasSubstr(server->url()), HasSubstr("POST /inference/v1/generate"),
                                       HasSubstr("HTTP 500")));
    }
    {
        const auto server = serve(false);
        server->set_failure("/v1/completions", 0);
        Program train(run(server->url(), {"engine.deadline_s=1"}));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), AllOf(HasSubstr(server->url()), HasSubstr("POST /v1/completions"),
                                       HasSubstr("no answer within engine.deadline_s")));
    }
    {
        const auto server = serve(true);
        server->set_failure("/collective_rpc", 500);
        Program train(run(server->url()));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), AllOf(HasSubstr(server->url()), HasSubstr("collective_rpc")));
    }
    std::string gone;
    { gone = serve(true)->url(); }
    Program train(run(gone));
    EXPECT_EQ(train.wait(), 1);
    EXPECT_THAT(train.err(), HasSubstr(gone.substr(7)));
}

TEST_F(VllmRun, WhatDoesNotGoWithItIsBadUsage) {
    const std::string url = "vllm://127.0.0.1:9";
    for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
             {"sync.mode=direct", "sync.mode: direct needs an engine that opens the trainer's memory"},
             {"sync.mode=alias", "sync.mode: alias needs an engine that can read weights in place"},
             {"sync.mode=delta", "sync.mode: delta needs an engine that applies changes"},
             {"engine.url=vlm://127.0.0.1:9", "engine.url: "},
             {"engine.url=unix-abstract:name", "engine.url: "},
             {"engine.url=vllm://", "engine.url: "}}) {
        Program train(run(url, {value}));
        EXPECT_EQ(train.wait(), 2) << value << ": " << train.err();
        EXPECT_THAT(train.err(), HasSubstr(message)) << value;
    }
    EXPECT_FALSE(std::filesystem::exists(runs()));
}

}  // namespace
}  // namespace tandem::test
