// Whole runs of tandem-train with a vLLM server as the engine: a stand-in that loads what it is pushed and samples with
// it, servers that fail in the middle, and configurations that do not go with one.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/multiproc/app/program.h"
#include "tests/support/vllm_rollouts.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class VllmRun : public testing::Test {
  protected:
    // The model that server and trainer begin with, made once; a head of its own.
    static void SetUpTestSuite() {
        made_ = new Folder;
        Program program(tiny_run(made_->path(), {"mesh.dp=1", "mesh.cp=1", "model.tie_embeddings=false",
                                                 "sft.steps=20", "grpo.steps=0"}));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    static void TearDownTestSuite() { delete made_; }

    std::string model() const { return *made_ / "tiny/checkpoint"; }
    std::unique_ptr<VllmStandIn> serve(bool scale_out) {
        VllmStandIn::Options options{.model = model()};
        options.more_routes = [this, scale_out](VllmStandIn& server) {
            add_rollout_routes(server, {model(), folder_ / "scratch", scale_out});
        };
        return std::make_unique<VllmStandIn>(options);
    }
    std::vector<std::string> run(const std::string& url, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> values{"mesh.dp=2",   "mesh.cp=1",         "model.path=" + model(),
                                        "sft.steps=0", "grpo.steps=3",      "held_out=16",
                                        "updates=2",   "engine.url=" + url, "grpo.temperature=0.8"};
        values.insert(values.end(), more.begin(), more.end());
        return tiny_run(folder_ / "runs", values);
    }
    nlohmann::json summary() const {
        return nlohmann::json::parse(read_file(folder_ / "runs/tiny/summary.json"));
    }

    static Folder* made_;
    Folder folder_;
};
Folder* VllmRun::made_ = nullptr;

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
        EXPECT_EQ(server->weights(), bytes_of_directory(folder_ / "runs/tiny/checkpoint"));

        const nlohmann::json s = summary();
        EXPECT_EQ(s["weight_version"], 4);
        EXPECT_TRUE(s["weights_match"].is_null());  // it cannot say
        // It samples with what was pushed, whatever step that is of.
        EXPECT_LE(s["logprob_max_abs_diff"], 1e-4);
        const auto lines = timeless_metrics(folder_ / "runs/tiny");
        int steps = 0;
        for (const nlohmann::json& line : lines) {
            if (line["phase"] != "grpo") continue;
            ++steps;
            EXPECT_LE(line["logprob_mean_abs_diff"], line["logprob_max_abs_diff"]);
            EXPECT_NEAR(line["importance_mean"], 1.0, 1e-4);
            EXPECT_EQ(line["importance_fraction"], 0);
            EXPECT_EQ(line["staleness"], 0);
        }
        EXPECT_EQ(steps, 3);
    }
}

TEST_F(VllmRun, TruncatedImportanceSamplingCanBeSwitchedOff) {
    const auto server = serve(true);
    Program train(run(server->url(), {"loss.tis=off", "grpo.steps=1"}));
    ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
    for (const nlohmann::json& line : timeless_metrics(folder_ / "runs/tiny")) {
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
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

}  // namespace
}  // namespace tandem::test
