// A push into SGLang servers of both generations that run our plug-in: the server's routes and its rank are stand-ins, and
// the rank really receives.
#include <cstdlib>
#include <future>

#include "tests/support/eventually.h"
#include "tests/support/sglang_plugin_stand_in.h"
#include "tests/unit/sync/push/sglang_fixture.h"

namespace tandem::sync {
namespace {

using engine::InFlight;
using test::SglangPluginStandIn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SglangPlugin : public SglangPush {
  protected:
    explicit SglangPlugin(const std::string& data_listen = "", const std::string& key = "")
        : old_(model("old", 1)), rank_(old_, data_listen, key), server_(with_plugin()) {}
    ~SglangPlugin() override { EXPECT_THAT(server_.violations(), IsEmpty()); }

    SglangStandIn::Options with_plugin() {
        auto options = started(old_);
        options.plugin = &rank_;
        options.tokenizer = "a name of the hub";  // nothing is looked for in this host's files
        return options;
    }
    ServerOutcome push_to_it(const std::string& model,
                             std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
        return push(model, {server_.url() + options_}, 0, "", deadline)[0];
    }
    void expect_served(const std::string& directory, const std::string& version) const {
        EXPECT_EQ(server_.weights(), bytes_of_directory(directory));
        EXPECT_EQ(server_.weight_version(), version);
        EXPECT_FALSE(server_.paused());
        EXPECT_EQ(rank_.note(), 0);
    }
    void expect_healed_by_the_next_push() {
        server_.mend();
        const std::string next = model("healing", 77);
        const ServerOutcome outcome = push_to_it(next);
        EXPECT_TRUE(outcome.whole) << outcome.error;
        expect_served(next, "1");
        EXPECT_TRUE(rank_.whole());
    }
    void expect_held_back() const {
        EXPECT_TRUE(server_.paused());
        EXPECT_EQ(server_.weight_version(), "loading 1");
    }

    const std::string old_;
    SglangPluginStandIn rank_;
    SglangStandIn server_;
    std::string options_;  // of the URL
};

INSTANTIATE_TEST_SUITE_P(Generations, SglangPlugin, kSglangGenerations);

TEST_P(SglangPlugin, EveryByteLandsInOneStep) {
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("next" + std::to_string(version), 10 + version);
        const ServerOutcome outcome = push_to_it(next);
        ASSERT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(outcome.kind, "sglang");
        EXPECT_EQ(outcome.before, version - 1);
        expect_served(next, std::to_string(version));
    }
    EXPECT_THAT(posts(server_), testing::Each("/update_weights_from_tensor"));
    EXPECT_THAT(staged(), IsEmpty());
}

TEST_P(SglangPlugin, RequestsEndWithTheWeightsThatTheyBeganWith) {
    server_.set_running(2);
    const std::string next = model("next", 2);
    auto pushed = std::async(std::launch::async, [&] { return push_to_it(next); });
    ASSERT_TRUE(test::eventually([&] { return !posts(server_).empty(); }));
    EXPECT_EQ(server_.weights(), bytes_of_directory(old_));
    server_.set_running(0);
    EXPECT_TRUE(pushed.get().whole);
    expect_served(next, "1");
}

TEST_P(SglangPlugin, RunningRequestsAreEndedWhereThatIsAskedFor) {
    in_flight_ = InFlight::abort;
    server_.set_running(2);
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push_to_it(next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    expect_served(next, "1");
    EXPECT_THAT(posts(server_),
                ElementsAre("/set_internal_state", "/pause_generation", "/update_weight_version",
                            "/update_weights_from_tensor", "/continue_generation", "/set_internal_state"));
}

TEST_P(SglangPlugin, RequestsThatDoNotEndAreNamed) {
    server_.set_running(1);
    EXPECT_THAT(push_to_it(model("next", 2), std::chrono::milliseconds(500)).error,
                AllOf(HasSubstr("requests had not ended"), HasSubstr("--abort-running")));
    EXPECT_EQ(server_.weights(), bytes_of_directory(old_));
    EXPECT_FALSE(server_.paused());
}

TEST_P(SglangPlugin, ABusyCacheIsEmptiedOnceItsRequestsHaveEnded) {
    server_.set_stray(1);
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push_to_it(next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    expect_served(next, "1");
    EXPECT_FALSE(server_.dead());
}

TEST_P(SglangPlugin, AFailureBeforeTheLoadLeavesTheOldWeightsServing) {
    for (const InFlight in_flight : {InFlight::wait, InFlight::abort}) {
        in_flight_ = in_flight;
        rank_.fail(SglangPluginStandIn::Fails::before_the_load);
        const ServerOutcome outcome = push_to_it(model("next", 2));
        EXPECT_FALSE(outcome.whole);
        EXPECT_THAT(outcome.error,
                    AllOf(HasSubstr("/update_weights_from_tensor"), HasSubstr("the rank refuses")));
        expect_served(old_, "default");
    }
    expect_healed_by_the_next_push();
}

TEST_P(SglangPlugin, AFailureInTheLoadLeavesItPausedAndTheNextPushHeals) {
    for (const InFlight in_flight : {InFlight::wait, InFlight::abort}) {
        in_flight_ = in_flight;
        SglangPluginStandIn rank(old_);
        auto options = started(old_);
        options.plugin = &rank;
        SglangStandIn server(options);
        rank.fail(SglangPluginStandIn::Fails::in_the_load);
        EXPECT_THAT(push(model("next", 2), {server.url()})[0].error, HasSubstr("the rank stumbles"));
        EXPECT_TRUE(server.paused());
        EXPECT_EQ(server.weight_version(), "loading 1");
        rank.fail(SglangPluginStandIn::Fails::
                      before_the_load);  // a push that does not come as far as the load heals nothing
        EXPECT_FALSE(push(model("third", 3), {server.url()})[0].whole);
        EXPECT_TRUE(server.paused());
        expect_heals(server);
        EXPECT_TRUE(rank.whole());
    }
}

// Its ranks stopped serving, so that no request ends; whoever pushed it died before it could be told a version.
TEST_P(SglangPlugin, WhatAKilledPusherToreIsHealed) {
    rank_.fail(SglangPluginStandIn::Fails::in_the_load);
    server_.set_failure("/pause_generation", 500);
    server_.set_failure("/update_weight_version", 500);
    EXPECT_FALSE(push_to_it(model("next", 2)).whole);
    EXPECT_TRUE(server_.paused());
    EXPECT_EQ(server_.weight_version(), "default");
    server_.set_running(1);
    expect_healed_by_the_next_push();
}

TEST_P(SglangPlugin, ALostAnswerIsNamed) {
    server_.set_failure("/update_weights_from_tensor", 0);
    EXPECT_THAT(push_to_it(model("next", 2), std::chrono::milliseconds(500)).error,
                HasSubstr("POST /update_weights_from_tensor"));
    EXPECT_FALSE(server_.paused());
    in_flight_ = InFlight::abort;
    EXPECT_FALSE(push_to_it(model("next", 2), std::chrono::milliseconds(500)).whole);
    expect_held_back();
    expect_healed_by_the_next_push();
}

TEST_P(SglangPlugin, AFailureOfAnyOtherStepLeavesTheOldWeightsServing) {
    in_flight_ = InFlight::abort;
    for (const char* route : {"/model_info", "/server_info", "/set_internal_state", "/pause_generation",
                              "/update_weight_version"}) {
        SCOPED_TRACE(route);
        server_.set_failure(route, 500);
        EXPECT_THAT(push_to_it(model("next", 2)).error, AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
        server_.mend();
        expect_served(old_, "default");
    }
    expect_healed_by_the_next_push();
}

TEST_P(SglangPlugin, APauseThatAKilledPusherLeftEndsWithTheNextPush) {
    server_.set_paused(true);
    rank_.leave_note(1);
    expect_healed_by_the_next_push();
}

TEST_P(SglangPlugin, APauseOfSomebodyElseStays) {
    server_.set_paused(true);
    const std::string next = model("next", 2);
    EXPECT_TRUE(push_to_it(next).whole);
    EXPECT_TRUE(server_.paused());
    EXPECT_EQ(server_.weights(), bytes_of_directory(next));
}

TEST_P(SglangPlugin, WhatItCannotDoIsNamed) {
    rank_.speak_protocol(2);
    EXPECT_THAT(
        push_to_it(model("next", 2)).error,
        AllOf(HasSubstr(server_.url()), HasSubstr("speaks protocol 2"), HasSubstr("same version of both")));
    rank_.speak_protocol(1);
    rank_.receive_nothing("rank 0: OSError: no memory");
    EXPECT_THAT(push_to_it(model("next", 2)).error, AllOf(HasSubstr(server_.url()), HasSubstr("no memory")));
    rank_.receive_nothing("");
    rank_.staging().say_it_receives_at("unix-abstract:nobody-listens-here");
    EXPECT_THAT(push_to_it(model("next", 2), std::chrono::hours(1)).error,
                AllOf(HasSubstr(server_.url()), HasSubstr("nobody-listens-here"), HasSubstr("same host")));
    expect_served(old_, "default");
    SglangStandIn stock(started(model("stock", 3)));
    EXPECT_THAT(push(model("next", 2), {stock.url() + "?transport=tcp"})[0].error,
                HasSubstr("that server runs without it"));
}

TEST_P(SglangPlugin, TensorsInSharedMemoryCanStillBeAskedFor) {
    in_flight_ = InFlight::abort;
    staging_ = "/dev/shm";
    SglangStandIn server(started(old_));
    const std::string next = model("next", 2);
    const auto outcomes = push(next, {"sglang+tensor" + server.url().substr(6)});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    staging_ = folder_ / "shm";
}

class SglangPluginOverTcp : public SglangPlugin {
  protected:
    SglangPluginOverTcp() : SglangPlugin("127.0.0.1:0", "the key") {
        ::setenv("TANDEM_API_KEY", "the key", 1);
    }
    ~SglangPluginOverTcp() override { ::unsetenv("TANDEM_API_KEY"); }
};

INSTANTIATE_TEST_SUITE_P(Generations, SglangPluginOverTcp, kSglangGenerations);

TEST_P(SglangPluginOverTcp, EveryByteLandsFromHereAndFromAnotherHost) {
    options_ = "?transport=tcp&connections=2";
    for (int version = 1; version <= 4; ++version) {
        if (version == 3) {
            rank_.staging().say_it_runs_on("another host");
            rank_.staging().say_it_receives_at("unix-abstract:of-another-host");
            options_ = "";
        }
        const std::string next = model("next" + std::to_string(version), 10 + version);
        const ServerOutcome outcome = push_to_it(next);
        ASSERT_TRUE(outcome.whole) << outcome.error;
        expect_served(next, std::to_string(version));
    }
}

}  // namespace
}  // namespace tandem::sync
