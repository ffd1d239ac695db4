// A push into SGLang servers of both generations: what lands, in which order it is asked for, and what each kind of
// broken server costs.
#include <future>

#include "common/printable.h"
#include "engine_adapter/hf_directory/push_lock.h"
#include "tests/support/eventually.h"
#include "tests/support/forked.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/sglang_fixture.h"

namespace tandem::sync {
namespace {

using engine::InFlight;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

INSTANTIATE_TEST_SUITE_P(Generations, SglangPush, kSglangGenerations);

TEST_P(SglangPush, EveryByteLandsInOneStep) {
    SglangStandIn server(started(model("a", 1)));
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("b" + std::to_string(version), 10 + version);
        const auto outcomes = push(next, {server.url()});
        ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_EQ(outcomes[0].kind, "sglang");
        EXPECT_EQ(outcomes[0].before, version - 1);
        EXPECT_EQ(outcomes[0].version, version);
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_EQ(server.weight_version(), std::to_string(version));
        EXPECT_THAT(staged(), IsEmpty());
    }
    EXPECT_THAT(posts(server), testing::Each("/update_weights_from_disk"));
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangPush, AServerThatWasStartedWithoutWeightsLoadsFiles) {
    SglangStandIn server({.model = model("a", 1), .load_format = "dummy", .version = GetParam()});
    const std::string next = model("b", 2);
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangPush, RequestsEndWithTheWeightsThatTheyBeganWith) {
    const std::string old = model("a", 1), next = model("b", 2);
    SglangStandIn server(started(old));
    server.set_running(2);
    auto pushed = std::async(std::launch::async, [&] { return push(next, {server.url()}); });
    ASSERT_TRUE(test::eventually([&] { return !posts(server).empty(); }));
    EXPECT_EQ(server.weights(), bytes_of_directory(old));
    server.set_running(0);
    const auto outcomes = pushed.get();
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangPush, RequestsThatDoNotEndAreNamed) {
    SglangStandIn server(started(model("a", 1)));
    server.set_running(1);
    expect_left_alone(server, AllOf(HasSubstr("requests had not ended"), HasSubstr("--abort-running")), "",
                      std::chrono::milliseconds(500));
    server.set_running(0);  // its update fails: what was staged is gone
    expect_heals(server);
}

TEST_P(SglangPush, RunningRequestsAreEndedWhereThatIsAskedFor) {
    in_flight_ = InFlight::abort;
    SglangStandIn server(started(model("a", 1)));
    server.set_running(2);
    const std::string next = model("b", 2);
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_EQ(server.weight_version(), "1");
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(posts(server),
                ElementsAre("/pause_generation", "/update_weight_version", "/update_weights_from_disk",
                            "/flush_cache", "/update_weight_version", "/continue_generation"));
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangPush, ADryRunChangesNothing) {
    const std::string old = model("a", 1);
    SglangStandIn server(started(old));
    dry_run_ = true;
    const auto outcomes = push(model("b", 2), {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(outcomes[0].version, 1);
    EXPECT_EQ(server.weights(), bytes_of_directory(old));
    EXPECT_THAT(posts(server), IsEmpty());
}

TEST_P(SglangPush, AServerOfAnotherKindIsUpdatedBesideIt) {
    const std::string next = model("b", 2);
    SglangStandIn server(started(model("a", 1)));
    test::VllmStandIn other({.model = model("c", 3)});
    const auto outcomes = push(next, {server.url(), other.url()});
    for (const ServerOutcome& outcome : outcomes) EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_EQ(other.weights(), bytes_of_directory(next));
}

TEST_P(SglangPush, OnePushAtATime) {
    SglangStandIn server(started(model("a", 1)));
    engine::PushLock other(staging(), server.url(), test::soon());
    const auto outcome = push(model("b", 2), {server.url()}, 0, "", std::chrono::milliseconds(200))[0];
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(server.url()), HasSubstr("another push into it")));
    EXPECT_THAT(posts(server), IsEmpty());
    other.release();
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    EXPECT_THAT(staged(), IsEmpty());
}

// ---- what it holds and who it is ----

// An update from a directory makes that its model_path; where the tokenizer lies elsewhere, nothing tells the model's.
TEST_P(SglangPush, AModelThatIsNotToBeFoundIsNamed) {
    auto options = started(model("a", 1));
    options.tokenizer = (folder_ / "tokenizer").string();
    SglangStandIn server(options);
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    if (GetParam() == "0.5.23") {
        EXPECT_TRUE(push(model("b", 3), {server.url()})[0].whole);
    } else {
        expect_left_alone(server, AllOf(HasSubstr("tandem-staged"), HasSubstr("--model-path")));
    }
}

TEST_P(SglangPush, WeightsAreCastWhereItSaysWhatItComputesIn) {
    auto options = started(model("a", 1));
    options.dtype = "bfloat16";
    SglangStandIn server(options);
    const auto outcomes = push(model("b", 2), {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights().at("model.norm.weight").size(), 24u * 2);
}

TEST_P(SglangPush, AnotherShape) {
    SglangStandIn server(started(model("a", 1, DType::float32, 44)));
    expect_left_alone(server, AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("[44, 24]")));
}

TEST_P(SglangPush, WrongKeys) {
    auto options = started(model("a", 1));
    options.api_key = "another";
    SglangStandIn server(options);
    expect_left_alone(server, AllOf(HasSubstr("HTTP 401"), HasSubstr("set SGLANG_API_KEY")));
    expect_left_alone(server,
                      AllOf(HasSubstr("HTTP 401"), HasSubstr("not this server's"), Not(HasSubstr("secret"))),
                      "secret");
    EXPECT_TRUE(push(model("b", 2), {server.url()}, 0, "another")[0].whole);
}

TEST_P(SglangPush, TheAdminKeyIsNeededForTheUpdate) {
    auto options = started(model("a", 1));
    options.admin_api_key = "admin";
    SglangStandIn server(options);
    expect_left_alone(server, AllOf(HasSubstr("POST /update_weights_from_disk"), HasSubstr("HTTP 401")));
    EXPECT_TRUE(push(model("b", 2), {server.url()}, 0, "admin")[0].whole);
}

TEST_P(SglangPush, NoUpdateRoutes) {
    auto options = started(model("a", 1));
    options.update_routes = false;
    SglangStandIn server(options);
    expect_left_alone(server, AllOf(HasSubstr("/update_weights_from_disk"), HasSubstr("HTTP 404"),
                                    HasSubstr("SGLANG_RUST_SERVER")));
}

TEST_P(SglangPush, AnotherKindOfServer) {
    test::VllmStandIn vllm({.model = model("a", 1)});
    const std::string url = "sglang" + vllm.url().substr(4);
    EXPECT_THAT(push(model("b", 2), {url})[0].error,
                AllOf(HasSubstr("not an SGLang server"), HasSubstr("use vllm://")));
    SglangStandIn sglang(started(model("c", 1)));
    EXPECT_THAT(push(model("b", 2), {"vllm" + sglang.url().substr(6)})[0].error,
                AllOf(HasSubstr("not a vLLM server"), HasSubstr("use sglang://")));
}

// ---- servers that are not as they should be ----

TEST_P(SglangPush, AcceptsAndNeverAnswers) {
    auto options = started(model("a", 1));
    options.fails = {{"/model_info", 0}};
    SglangStandIn server(options);
    expect_left_alone(server, AllOf(HasSubstr("GET /model_info"), HasSubstr("no answer before the deadline")),
                      "", std::chrono::milliseconds(500));
}

TEST_P(SglangPush, SlowerThanTheDeadlineButNotThanALongerOne) {
    auto options = started(model("a", 1));
    options.delay = std::chrono::milliseconds(200);
    SglangStandIn server(options);
    expect_left_alone(server, HasSubstr("deadline"), "", std::chrono::milliseconds(300));
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
}

TEST_P(SglangPush, WhatFailsBeforeTheLoadLeavesTheOldWeightsServing) {
    for (const char* route : {"/model_info", "/server_info"}) {
        SCOPED_TRACE(route);
        SglangStandIn server(started(model("a", 1)));
        server.set_failure(route, 500);
        expect_left_alone(server, AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
    }
    in_flight_ = InFlight::abort;
    // The second: it serves what it served before, whether it can be told the version of that or not.
    for (const char* route : {"/pause_generation", "/update_weight_version"}) {
        SCOPED_TRACE(route);
        SglangStandIn server(started(model("a", 1)));
        server.set_failure(route, 500);
        expect_left_alone(server, AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
    }
}

// In SGLang's own words.
TEST_P(SglangPush, ARefusedLoadLeavesTheOldWeightsServing) {
    for (const InFlight in_flight : {InFlight::wait, InFlight::abort}) {
        for (const char* message :
             {"Failed to get weights iterator: Cannot find any model weights with `/x`.",
              "Failed to get model loader: <ShardedStateLoader>.",
              "Online weight updates are not supported while the HPC-Ops bf16xfp32 GEMM optimization is "
              "enabled: the cached weight split would keep serving the old weights.",
              "Failed to get weights iterator: a. | Failed to get weights iterator: b."}) {
            SCOPED_TRACE(message);
            in_flight_ = in_flight;
            SglangStandIn server(started(model("a", 1)));
            server.set_refusal("/update_weights_from_disk", message);
            const bool unseen = std::string_view(message).starts_with("Failed to get weights iterator");
            expect_left_alone(server, AllOf(HasSubstr(message), HasSubstr(unseen ? "must share it" : "")));
            expect_heals(server);
        }
    }
}

TEST_P(SglangPush, AFailedLoadLeavesItPausedAndTheNextPushHeals) {
    for (const InFlight in_flight : {InFlight::wait, InFlight::abort}) {
        for (const char* message :
             {"Failed to update weights: shape.\nRolling back to original weights.",
              "Succeeded to update model weights. | Failed to get weights iterator: b."}) {
            SCOPED_TRACE(message);
            in_flight_ = in_flight;
            SglangStandIn server(started(model("a", 1)));
            server.set_refusal("/update_weights_from_disk", message);
            EXPECT_THAT(push(model("b", 2), {server.url()})[0].error, HasSubstr(printable(message)));
            EXPECT_TRUE(server.paused());
            EXPECT_EQ(server.weight_version(), "loading 1");
            EXPECT_THAT(staged(), IsEmpty());
            expect_heals(server);
        }
    }
}

TEST_P(SglangPush, AnErrorOfTheServerInTheLoadLeavesItPausedAndTheNextPushHeals) {
    SglangStandIn server(started(model("a", 1)));
    server.set_failure("/update_weights_from_disk", 500);
    EXPECT_THAT(push(model("b", 2), {server.url()})[0].error,
                AllOf(HasSubstr("/update_weights_from_disk"), HasSubstr("HTTP 500")));
    EXPECT_TRUE(server.paused());
    EXPECT_EQ(server.weight_version(), "loading 1");
    expect_heals(server);
}

TEST_P(SglangPush, ALostAnswerIsNamed) {
    SglangStandIn server(started(model("a", 1)));
    server.set_failure("/update_weights_from_disk", 0);
    expect_left_alone(server, HasSubstr("POST /update_weights_from_disk"), "",
                      std::chrono::milliseconds(500));
    expect_heals(server);
    in_flight_ = InFlight::abort;
    SglangStandIn paused(started(model("a", 1)));
    paused.set_failure("/update_weights_from_disk", 0);
    EXPECT_FALSE(push(model("b", 2), {paused.url()}, 0, "", std::chrono::milliseconds(500))[0].whole);
    EXPECT_TRUE(paused.paused());
    EXPECT_EQ(paused.weight_version(), "loading 1");
    expect_heals(paused);
}

// Requests that the server did not wait for keep its cache from being emptied.
TEST_P(SglangPush, ABusyCacheIsEmptiedOnceItsRequestsHaveEnded) {
    if (GetParam() != "0.5.23") in_flight_ = InFlight::abort;  // older ones end themselves there
    SglangStandIn server(started(model("a", 1)));
    server.set_stray(1);
    const std::string next = model("b", 2);
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_EQ(server.weight_version(), "1");
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(server.violations(), IsEmpty());
}

TEST_P(SglangPush, ACacheThatCannotBeEmptiedLeavesItPausedAndTheNextPushHeals) {
    in_flight_ = InFlight::abort;
    SglangStandIn server(started(model("a", 1)));
    server.set_failure("/flush_cache", 400);
    EXPECT_THAT(push(model("b", 2), {server.url()})[0].error, HasSubstr("POST /flush_cache"));
    EXPECT_TRUE(server.paused());
    EXPECT_FALSE(server.dead());
    server.mend();
    const std::string next = model("c", 3);
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_FALSE(server.paused());
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_THAT(server.violations(), IsEmpty());
}

// ---- pauses of others, and of pushers that are gone ----

TEST_P(SglangPush, APauseOfSomebodyElseStays) {
    SglangStandIn server(started(model("a", 1)));
    server.set_paused(true);
    const std::string next = model("b", 2);
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    EXPECT_TRUE(server.paused());
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    if (GetParam() != "0.5.23") return;  // older ones cannot tell
    in_flight_ = InFlight::abort;
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    EXPECT_TRUE(server.paused());
}

TEST_P(SglangPush, ThePauseOfADeadPusherEnds) {
    test::Forked pusher([&](const std::string& url) -> int {
        const auto mine = stage();
        mine.note(url);
        ::_exit(0);
    });
    SglangStandIn server(started(model("a", 1)));
    server.set_paused(true);
    ASSERT_EQ(pusher.act(server.url()), 0);
    expect_heals(server);
}

}  // namespace
}  // namespace tandem::sync
