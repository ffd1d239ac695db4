// A push into SGLang servers as tensors in shared memory: what lands on every rank, and what a step that fails costs.
#include <algorithm>

#include "tests/support/eventually.h"
#include "tests/support/forked.h"
#include "tests/unit/sync/push/sglang_fixture.h"

namespace tandem::sync {
namespace {

using engine::InFlight;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class SglangTensors : public SglangPush {
  protected:
    SglangTensors() {
        in_flight_ = InFlight::abort;
        staging_ = "/dev/shm";
    }
    static std::string url(const SglangStandIn& server) { return "sglang+tensor" + server.url().substr(6); }
    bool sessions() const { return GetParam() == "0.5.23"; }

    // Of what is staged since the test began. Other processes stage there, too, and end.
    std::vector<std::string> left_in_shared_memory() const {
        std::vector<std::string> left = staged();
        std::erase_if(left, [&](const std::string& name) {
            return !name.starts_with("tandem-staged.") || std::ranges::count(before_, name) > 0;
        });
        const auto gone = [&] {
            std::erase_if(left, [&](const std::string& name) { return !fs::exists(staging() / name); });
            return left.empty();
        };
        test::eventually(gone, std::chrono::seconds(90));
        return left;
    }

  private:
    const std::vector<std::string> before_ = names_in("/dev/shm");
};
INSTANTIATE_TEST_SUITE_P(Generations, SglangTensors, kSglangGenerations);

TEST_P(SglangTensors, EveryByteLandsOnEveryRank) {
    auto options = started(model("a", 1));
    options.tp = 2;
    SglangStandIn server(options);
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("b" + std::to_string(version), 10 + version);
        const auto outcomes = push(next, {url(server)});
        ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_EQ(server.weight_version(), std::to_string(version));
        EXPECT_FALSE(server.paused());
        EXPECT_THAT(left_in_shared_memory(), IsEmpty());
    }
    std::vector<std::string> calls = posts(server);
    calls.resize(calls.size() / 3);
    std::vector<std::string> wanted{"/pause_generation", "/update_weight_version"};
    if (sessions()) wanted.push_back("/begin_weight_update");
    wanted.push_back("/update_weights_from_tensor");
    if (sessions()) wanted.push_back("/end_weight_update");
    for (const char* last : {"/flush_cache", "/update_weight_version", "/continue_generation"})
        wanted.push_back(last);
    EXPECT_EQ(calls, wanted);
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangTensors, EachStepThatFailsLeavesItPausedAndTheNextPushHeals) {
    std::vector<const char*> routes{"/update_weights_from_tensor", "/flush_cache"};
    if (sessions()) routes.insert(routes.end(), {"/begin_weight_update", "/end_weight_update"});
    for (const char* route : routes) {
        SCOPED_TRACE(route);
        SglangStandIn server(started(model("a", 1)));
        server.set_failure(route, 500);
        EXPECT_THAT(push(model("b", 2), {url(server)})[0].error,
                    AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
        EXPECT_TRUE(server.paused());
        EXPECT_EQ(server.weight_version(), "loading 1");
        EXPECT_THAT(left_in_shared_memory(), IsEmpty());
        server.mend();  // a session that is still open is ended first
        const std::string next = model("c", 3);
        const auto outcomes = push(next, {url(server)});
        EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_FALSE(server.paused());
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_THAT(server.violations(), IsEmpty());
    }
}

TEST_P(SglangTensors, ARefusalLeavesTheOldWeightsServing) {
    const std::string old = model("a", 1);
    SglangStandIn server(started(old));
    server.set_refusal(
        "/update_weights_from_tensor",
        "Online weight updates are not supported while compensated mHC weight splits are active");
    EXPECT_THAT(push(model("b", 2), {url(server)})[0].error, HasSubstr("mHC weight splits"));
    EXPECT_EQ(server.weights(), bytes_of_directory(old));
    EXPECT_EQ(server.weight_version(), "default");
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangTensors, WhatItCannotBeGivenIsRefusedBeforeItIsPaused) {
    SglangStandIn server(started(model("a", 1)));
    in_flight_ = InFlight::wait;
    EXPECT_THAT(push(model("b", 2), {url(server)})[0].error, HasSubstr("--abort-running"));
    in_flight_ = InFlight::abort;
    staging_ = folder_ / "shm";
    EXPECT_THAT(push(model("b", 2), {url(server)})[0].error, HasSubstr("stage them there"));
    EXPECT_THAT(posts(server), IsEmpty());
}

TEST_P(SglangTensors, ThePauseOfADeadPusherEndsWithAPushByADirectory) {
    const std::string next = model("b", 2);
    test::Forked pusher([&](const std::string& url) {
        push(next, {url});
        return 0;
    });
    SglangStandIn server(started(model("a", 1)));
    server.set_failure("/update_weight_version",
                       0);  // never answers, so that the server is not told what it holds
    pusher.tell(url(server));
    EXPECT_TRUE(test::eventually([&] { return server.paused(); }));
    pusher.signal(SIGKILL);
    ASSERT_EQ(pusher.end(), 128 + SIGKILL);
    server.mend();
    in_flight_ = InFlight::wait;
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_FALSE(server.paused());
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_THAT(left_in_shared_memory(), IsEmpty());
}

}  // namespace
}  // namespace tandem::sync
