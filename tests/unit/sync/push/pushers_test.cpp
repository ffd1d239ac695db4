// Several pushers into one server, and what is left of one that was killed.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "engine_adapter/hf_directory/push_lock.h"
#include "tests/support/forked.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Push, PushersTakeTurns) {
    VllmStandIn server({.model = model("a", 1), .delay = std::chrono::milliseconds(3)});
    const std::array<std::string, 2> models{model("odd", 3), model("even", 4)};
    std::array<std::int64_t, 2> newest{};
    {
        std::vector<std::jthread> pushers;
        for (std::int64_t which = 0; which < 2; ++which) {
            pushers.emplace_back([&, which] {
                const auto at = static_cast<std::size_t>(which);
                for (std::int64_t version = which + 1; version <= 12; version += 2) {
                    const auto outcome = push(models[at], {server.url()}, version)[0];
                    if (outcome.whole)
                        newest[at] = version;
                    else
                        EXPECT_THAT(outcome.error, HasSubstr("is not above"));
                }
            });
        }
    }
    const bool even = newest[1] > newest[0];
    EXPECT_EQ(server.weight_version(), std::to_string(newest[even ? 1 : 0]));
    EXPECT_EQ(server.weights(), bytes_of_directory(models[even ? 1 : 0]));
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(server.violations(), IsEmpty());
    EXPECT_THAT(staged(), IsEmpty());

    std::vector<std::string> changes;
    for (const std::string& call : server.calls()) {
        if (call.starts_with("POST")) changes.push_back(call);
    }
    const std::vector<std::string> push_calls{"POST /pause",
                                              "POST /update_weight_version",
                                              "POST /collective_rpc",
                                              "POST /reset_prefix_cache",
                                              "POST /update_weight_version",
                                              "POST /resume"};
    ASSERT_EQ(changes.size() % push_calls.size(), 0u);
    for (std::size_t i = 0; i < changes.size(); ++i) EXPECT_EQ(changes[i], push_calls[i % push_calls.size()]);
}

TEST_F(Push, AServerIsAskedOnceWhatItIs) {
    VllmStandIn server({.model = model("a", 1)});
    ASSERT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    const auto calls = server.calls();
    for (const char* call : {"GET /version", "GET /server_info", "GET /v1/models"})
        EXPECT_EQ(std::count(calls.begin(), calls.end(), call), 1) << call;
}

TEST_F(Push, WhoWaitsForAnotherPushNamesIt) {
    VllmStandIn server({.model = model("a", 1)});
    engine::PushLock other(staging(), server.url(), test::soon());
    const auto outcome = push(model("b", 2), {server.url()}, 0, "", std::chrono::milliseconds(200))[0];
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(server.url()), HasSubstr("another push into it (process " +
                                                                        std::to_string(::getpid()) + ")")));
    EXPECT_THAT(server.calls(), testing::Not(testing::Contains(HasSubstr("POST"))));
    other.release();
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    EXPECT_THAT(staged(), IsEmpty());
}

TEST_F(Push, ADeadPusherHoldsNobodyUp) {
    test::Forked pusher([&](const std::string& url) -> int {
        const engine::PushLock held(staging(), url, test::soon());
        ::_exit(held ? 0 : 1);  // with the lock in its hands
    });
    VllmStandIn server({.model = model("a", 1)});
    ASSERT_EQ(pusher.act(server.url()), 0);
    ASSERT_THAT(locks(), testing::SizeIs(1));
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    EXPECT_THAT(locks(), IsEmpty());
}

// ---- what a killed pusher leaves ----

TEST_F(Push, WhatADeadPusherLeftIsRemovedAndItsPauseEnds) {
    test::Forked pusher([&](const std::string& url) -> int {
        const auto mine = stage(), unnoted = stage();
        mine.note("vllm://elsewhere:1");
        mine.note(url);
        ::_exit(0);
    });
    VllmStandIn server({.model = model("a", 1)});
    server.set_paused(true);
    ASSERT_EQ(pusher.act(server.url()), 0);
    ASSERT_EQ(staged().size(), 2u);
    // Of a process that lives.
    const auto living = stage();

    const std::string next = model("b", 2);
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    EXPECT_FALSE(server.paused());
    // The other server's note stays, without the weights.
    ASSERT_EQ(staged().size(), 2u);
    for (const engine::LeftNote& note : engine::sweep_staged_directories(staging())) {
        EXPECT_EQ(note.text, "vllm://elsewhere:1");
        note.forget();
    }
    EXPECT_THAT(staged(), ElementsAre(living.path().filename().string()));
}

TEST_F(Push, TheNoteOfAnotherServersPauseIsKeptWithoutItsWeights) {
    test::Forked pusher([&](const std::string&) -> int {
        const auto mine = stage();
        mine.note("vllm://elsewhere:1");
        ::_exit(0);
    });
    VllmStandIn server({.model = model("a", 1)});
    ASSERT_EQ(pusher.act(), 0);
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    ASSERT_EQ(staged().size(), 1u);
    EXPECT_FALSE(fs::is_empty(staging() / staged()[0]));
    EXPECT_FALSE(fs::exists(staging() / staged()[0] / "model.safetensors"));
}

}  // namespace
}  // namespace tandem::sync
