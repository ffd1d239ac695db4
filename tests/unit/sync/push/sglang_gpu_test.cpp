// Pushes into SGLang servers of both generations from a GPU: broadcast over NCCL, in a group that meets at a store of this
// process, and tensors that are opened by CUDA IPC. The server's routes and its ranks are stand-ins; GPUs are emulated.
#include <numeric>

#include "common/comm/launch.h"
#include "sync/push/directory_source.h"
#include "tests/unit/sync/push/sglang_gpu_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

INSTANTIATE_TEST_SUITE_P(Generations, SglangGpu, kSglangGenerations);

TEST_P(SglangGpu, EveryByteLandsByEitherWay) {
    std::int64_t version = 0;
    serve(model("old", 1));
    for (const char* scheme : {"sglang+nccl", "sglang+tensor"}) {
        for (int push = 0; push < 2; ++push) {
            const std::string next = model("next" + std::to_string(version), 10 + static_cast<int>(version));
            const ServerOutcome outcome = push_by(scheme, next);
            ASSERT_TRUE(outcome.whole) << outcome.error;
            EXPECT_EQ(outcome.kind, "sglang");
            expect_served(next, std::to_string(++version));
        }
    }
}

TEST_P(SglangGpu, ABroadcastIsAskedForInItsOrder) {
    serve(model("old", 1), 2);
    packed_bytes_ = 2000;
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push_by("sglang+nccl", next);
    ASSERT_TRUE(outcome.whole) << outcome.error;
    expect_served(next, "1");
    const std::vector<std::size_t> sizes = ranks_->received();
    EXPECT_GT(sizes.size(), 1u);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), (40u + 24u + 1u) * 24u * 4u);
    std::vector<std::string> wanted{"/init_weights_update_group", "/pause_generation",
                                    "/update_weight_version"};
    const bool sessions = GetParam() == "0.5.23";
    if (sessions) wanted.emplace_back("/begin_weight_update");
    wanted.insert(wanted.end(), sizes.size(), "/update_weights_from_distributed");
    if (sessions) wanted.emplace_back("/end_weight_update");
    wanted.insert(wanted.end(), {"/flush_cache", "/update_weight_version", "/continue_generation",
                                 "/destroy_weights_update_group"});
    EXPECT_EQ(posts(*server_), wanted);
}

TEST_P(SglangGpu, OneGroupServesASession) {
    serve(model("old", 1), 2);
    const auto world = comm::solo();
    const std::string next = model("next", 5);
    {
        const DirectorySource source(next, world);
        Session session(world, source,
                        engine::connect(url("sglang+nccl"), Deadline::after_ms(20'000), options()));
        for (int version = 1; version <= 3; ++version) session.push(version);
        EXPECT_TRUE(ranks_->in_group());
    }
    EXPECT_EQ(ranks_->groups(), 1);
    expect_served(next, "3");
}

TEST_P(SglangGpu, AnotherGroupIsFormedAfterAFailure) {
    serve(model("old", 1), 2);
    packed_bytes_ = 2000;
    ranks_->fail_in_update(2);
    EXPECT_THAT(push_by("sglang+nccl", model("next", 2)).error,
                AllOf(HasSubstr("/update_weights_from_distributed"), HasSubstr("a rank stumbles")));
    expect_held_back();
    expect_healed_by("sglang+nccl");
    EXPECT_EQ(ranks_->groups(), 2);
}

TEST_P(SglangGpu, RanksThatDoNotMeetLeaveTheOldWeightsServing) {
    const std::string old = model("old", 1);
    serve(old);
    server_->set_refusal("/init_weights_update_group",
                         "Failed to initialize custom process group: The client socket has timed out.");
    EXPECT_THAT(push_by("sglang+nccl", model("next", 2)).error,
                AllOf(HasSubstr(url("sglang+nccl")), HasSubstr("/init_weights_update_group"),
                      HasSubstr("timed out")));
    expect_served(old, "default");
    expect_healed_by("sglang+nccl");
}

TEST_P(SglangGpu, AStrangerAtTheStoreIsToldNothing) {
    serve(model("old", 1), 2, true);
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push_by("sglang+nccl", next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_FALSE(ranks_->stranger_was_told());
    expect_served(next, "1");
}

TEST_P(SglangGpu, RanksThatNeverJoinAreNamed) {
    serve(model("old", 1));
    server_->set_failure("/update_weights_from_distributed", 0);
    EXPECT_THAT(push_by("sglang+nccl", model("next", 2), std::chrono::milliseconds(700)).error,
                AllOf(HasSubstr(url("sglang+nccl")), HasSubstr("deadline")));
    expect_held_back();
    expect_healed_by("sglang+nccl");
}

TEST_P(SglangGpu, ARefusedBroadcastLeavesTheOldWeightsServing) {
    const std::string old = model("old", 1);
    serve(old);
    server_->set_refusal("/update_weights_from_distributed",
                         "update_weights_from_distributed must run between begin_weight_update() and end");
    EXPECT_THAT(push_by("sglang+nccl", model("next", 2)).error, HasSubstr("must run between"));
    expect_served(old, "default");
    expect_healed_by("sglang+nccl");
}

TEST_P(SglangGpu, AnErrorOfTheServerInTheMiddleHoldsItBack) {
    for (const char* scheme : {"sglang+nccl", "sglang+tensor"}) {
        SCOPED_TRACE(scheme);
        serve(model("old", 1));
        const char* route = std::string_view(scheme) == "sglang+nccl" ? "/update_weights_from_distributed"
                                                                      : "/update_weights_from_tensor";
        server_->set_failure(route, 500);
        EXPECT_THAT(push_by(scheme, model("next", 2)).error, AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
        expect_held_back();
        expect_healed_by(scheme);
    }
}

TEST_P(SglangGpu, NcclThatRefusesTheGroupIsNamed) {
    serve(model("old", 1));
    comm::nccl::fake::set({.init = comm::nccl::Result::invalid_usage});
    EXPECT_THAT(push_by("sglang+nccl", model("next", 2)).error,
                AllOf(HasSubstr("join of the workers"), HasSubstr("use sglang+tensor://")));
    comm::nccl::fake::reset();
    expect_held_back();
    expect_healed_by("sglang+nccl");
}

TEST_P(SglangGpu, WhereItCannotBeServedFromHereItIsLeftAlone) {
    const std::string old = model("old", 1), next = model("next", 2);
    serve(old);
    gpu_ = {DeviceType::cuda, 7};
    EXPECT_THAT(push_by("sglang+nccl", next).error,
                AllOf(HasSubstr("cuda:7 is not there"), HasSubstr("sglang://")));
    gpu_ = {DeviceType::cuda, 0};
    in_flight_ = engine::InFlight::wait;
    EXPECT_THAT(push_by("sglang+nccl", next).error, HasSubstr("--abort-running"));
    EXPECT_THAT(posts(*server_), IsEmpty());
    expect_served(old, "default");
}

}  // namespace
}  // namespace tandem::sync
