// Whole runs of tandem-train with an SGLang server as the engine: a stand-in of each generation that loads what it is
// pushed and samples with it, and servers that fail in the middle.
#include <algorithm>

#include "tests/multiproc/app/others_run.h"
#include "tests/support/sglang_rollouts.h"
#include "tests/support/sglang_stand_in.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class SglangRun : public OthersRun {
  protected:
    std::unique_ptr<SglangStandIn> serve(const std::string& version = "0.5.23", bool memory_saver = true) {
        SglangStandIn::Options options{.model = model(), .version = version, .memory_saver = memory_saver};
        options.more_routes = [this](SglangStandIn& server) {
            add_rollout_routes(server, {model(), scratch()});
        };
        return std::make_unique<SglangStandIn>(options);
    }
};

TEST_F(SglangRun, EitherGenerationTeachesTheServersOwnWeights) {
    for (const char* version : {"0.5.15.post1", "0.5.23"}) {
        SCOPED_TRACE(version);
        const auto server = serve(version);
        Program train(run(server->url()));
        ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
        EXPECT_EQ(server->weight_version(), "4");
        EXPECT_FALSE(server->paused());
        EXPECT_THAT(server->violations(), IsEmpty());
        EXPECT_EQ(server->weights(), bytes_of_directory(runs() + "/tiny/checkpoint"));
        EXPECT_THAT(train.err(), HasSubstr("--enable-deterministic-inference"));
        expect_sampled_by_what_was_pushed();
    }
}

// Its weights are gone by then: what it samples with afterwards can only be what was pushed.
TEST_F(SglangRun, ItsMemoryIsReleasedWhileTheTrainerComputes) {
    for (const std::string level : {"kv_cache", "all"}) {
        SCOPED_TRACE(level);
        const auto server = serve();
        Program train(run(server->url(), {"memory.engine_sleep=" + level}));
        ASSERT_EQ(train.wait(std::chrono::seconds(120)), 0) << train.err();
        EXPECT_THAT(server->violations(), IsEmpty());
        EXPECT_EQ(server->weights(), bytes_of_directory(runs() + "/tiny/checkpoint"));
        const auto calls = server->calls();
        const std::ptrdiff_t tags = level == "all" ? 2 : 1;
        for (const char* call : {"POST /release_memory_occupation", "POST /resume_memory_occupation"})
            EXPECT_EQ(std::count(calls.begin(), calls.end(), call), 3 * tags) << call;
        expect_sampled_by_what_was_pushed();
    }
}

TEST_F(SglangRun, AServerThatKeepsItsMemoryIsToldHowToStart) {
    const auto server = serve("0.5.23", /*memory_saver=*/false);
    Program train(run(server->url(), {"memory.engine_sleep=kv_cache"}));
    EXPECT_EQ(train.wait(), 1);
    EXPECT_THAT(train.err(), HasSubstr("--enable-memory-saver"));
}

TEST_F(SglangRun, AServerThatFailsIsNamed) {
    for (const char* route : {"/generate", "/update_weights_from_disk"}) {
        SCOPED_TRACE(route);
        const auto server = serve();
        server->set_failure(route, 500);
        Program train(run(server->url()));
        EXPECT_EQ(train.wait(), 1);
        EXPECT_THAT(train.err(), AllOf(HasSubstr(server->url().substr(9)),
                                       HasSubstr(std::string("POST ") + route), HasSubstr("HTTP 500")));
    }
    const auto server = serve();
    server->set_failure("/generate", 0);
    Program train(run(server->url(), {"engine.deadline_s=1"}));
    EXPECT_EQ(train.wait(), 1);
    EXPECT_THAT(train.err(), AllOf(HasSubstr("POST /generate"), HasSubstr("deadline")));
}

TEST_F(SglangRun, WhatDoesNotGoWithItIsBadUsage) {
    for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
             {"sync.mode=direct", "sync.mode: direct needs an engine that opens the trainer's memory"},
             {"sync.mode=delta", "sync.mode: delta needs an engine that applies changes"},
             {"engine.url=sglang://", "engine.url: "},
             {"engine.url=sglang+tensor://127.0.0.1:9", "engine.url: "}}) {
        Program train(run("sglang://127.0.0.1:9", {value}));
        EXPECT_EQ(train.wait(), 2) << value << ": " << train.err();
        EXPECT_THAT(train.err(), HasSubstr(message)) << value;
    }
    EXPECT_FALSE(std::filesystem::exists(runs()));
}

}  // namespace
}  // namespace tandem::test
