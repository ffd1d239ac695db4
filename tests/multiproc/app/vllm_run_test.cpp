// Whole runs of tandem-train with a vLLM server as the engine: a stand-in that loads what it is pushed and samples with
// it, servers that fail in the middle, and configurations that do not go with one.
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
    std::unique_ptr<VllmStandIn> serve(bool scale_out) {
        VllmStandIn::Options options{.model = model()};
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
             {"memory.engine_sleep=all", "memory.engine_sleep: all: only an engine of ours"},
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
