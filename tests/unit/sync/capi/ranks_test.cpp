// A session of the C ABI over several trainer ranks: their shards, memory that they share or not, and who of them fails.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "sync/capi/dlpack.h"
#include "tests/unit/sync/capi/capi_fixture.h"
#include "tests/unit/sync/capi/gathering.h"

namespace tandem::sync {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rows of 4 over 3 ranks: 2, 2 and none; "b" whole on a mesh of ranks 0 and 2, and of rank 1 alone.
TEST_F(Capi, joinsRanksAndTheirShards) {
    std::int64_t version = 0;
    for (const char* mode : {"auto", "gather", "alias", "delta"}) {
        const std::string name = mode;
        ++version;
        const auto rank_body = [&](const td_group& group) {
            const int rank = group.rank;
            td_options chosen = options();
            if (rank != 0) chosen.engine_count = 0;
            chosen.mode = mode;
            td_session* session = nullptr;
            ASSERT_EQ(td_session_open(&chosen, &group, &session), TD_OK) << td_last_error();
            void* raw = nullptr;
            ASSERT_EQ(td_session_region(session, 6 * sizeof(float), 1, &raw), TD_OK) << td_last_error();
            auto* rows = static_cast<capi::dlpack::ManagedVersioned*>(raw);
            ASSERT_EQ(td_session_region(session, 5 * sizeof(float), 1, &raw), TD_OK) << td_last_error();
            auto* whole = static_cast<capi::dlpack::ManagedVersioned*>(raw);
            const std::size_t mine = rank < 2 ? 6 : 0;
            std::memcpy(rows->tensor.data, a_.data() + rank * 6 * (mine > 0), mine * sizeof(float));
            std::memcpy(whole->tensor.data, b_.data(), 5 * sizeof(float));

            const std::int32_t three[] = {3};
            td_mesh all{sizeof(td_mesh), 1, three, nullptr};
            const std::int32_t pair[] = {2}, single[] = {1}, outer[] = {0, 2}, middle[] = {1};
            td_mesh part = rank == 1 ? td_mesh{sizeof(td_mesh), 1, single, middle}
                                     : td_mesh{sizeof(td_mesh), 1, pair, outer};
            const td_placement shard{TD_SHARD, 0, 0, 0}, replicate{TD_REPLICATE, 0, 0, 0};
            td_tensor tensors[] = {a(), b()};
            tensors[0].data = mine > 0 ? rows->tensor.data : nullptr;
            tensors[0].mesh = &all;
            tensors[0].placements = &shard;
            const std::int64_t local[] = {mine > 0 ? 2 : 0, 3};
            tensors[0].local_shape = local;
            tensors[1].data = whole->tensor.data;
            tensors[1].mesh = &part;
            tensors[1].placements = &replicate;
            ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
            td_report report{};
            report.size = sizeof report;
            ASSERT_EQ(td_session_push(session, version, &report), TD_OK) << td_last_error();
            EXPECT_EQ(std::string(report.mode), name == "auto" ? "direct" : name);
            std::int32_t match = 0;
            ASSERT_EQ(td_session_check(session, &match, nullptr, 0), TD_OK) << td_last_error();
            EXPECT_EQ(match, 1);

            std::int32_t finite = 0;
            char found[128] = "?";
            ASSERT_EQ(td_session_finite(session, &finite, found, sizeof found), TD_OK) << td_last_error();
            EXPECT_EQ(finite, 1);
            EXPECT_STREQ(found, "");
            float* const own = static_cast<float*>(rows->tensor.data);
            const float before = own[4];
            if (rank == 1) own[4] = std::numeric_limits<float>::quiet_NaN();  // row 3 of the whole
            ASSERT_EQ(td_session_finite(session, &finite, found, sizeof found), TD_OK) << td_last_error();
            EXPECT_EQ(finite, 0);
            EXPECT_THAT(found,
                        testing::EndsWith(" has 1 element that is infinite or NaN, the first in row 3"));
            own[4] = before;
            EXPECT_EQ(td_session_close(session), TD_OK);
            rows->deleter(rows);
            whole->deleter(whole);
        };
        receiver_ = std::make_unique<engine::Receiver>(target_);
        address_ = receiver_->address();
        engine_ = address_.c_str();
        if (target_.version() > 0) target_.lose_weights("the next mode's turn");
        test::as_ranks(3, rank_body);
        EXPECT_EQ(held(target_, 0), a_) << mode;
        EXPECT_EQ(held(target_, 1), b_) << mode;
    }
}

// As between hosts: ranks that share no memory, joined by a store and TCP.
TEST_F(Capi, joinsRanksOverTheNetwork) {
    ASSERT_EQ(::setenv("TANDEM_COMM", "gloo", 1), 0);
    test::as_ranks(3, [&](const td_group& group) {
        const td_options chosen = options();
        td_session* session = nullptr;
        ASSERT_EQ(td_session_open(&chosen, &group, &session), TD_OK) << td_last_error();
        const std::int32_t three[] = {3};
        td_mesh all{sizeof(td_mesh), 1, three, nullptr};
        const td_placement shard{TD_SHARD, 0, 0, 0};
        td_tensor tensors[] = {a(), b()};
        tensors[0].data = group.rank < 2 ? a_.data() + group.rank * 6 : nullptr;
        tensors[0].mesh = &all;
        tensors[0].placements = &shard;
        ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
        td_report report{};
        report.size = sizeof report;
        ASSERT_EQ(td_session_push(session, 1, &report), TD_OK) << td_last_error();
        EXPECT_STREQ(report.mode, "gather");
        EXPECT_EQ(td_session_close(session), TD_OK);
    });
    EXPECT_EQ(::unsetenv("TANDEM_COMM"), 0);
    EXPECT_EQ(held(target_, 0), a_);
    EXPECT_EQ(held(target_, 1), b_);
}

TEST_F(Capi, tellsEveryRankOfTheOneThatFails) {
    test::as_ranks(2, [&](const td_group& group) {
        const td_options chosen = options();
        td_session* session = nullptr;
        ASSERT_EQ(td_session_open(&chosen, &group, &session), TD_OK) << td_last_error();
        td_tensor tensors[] = {a(), b()};
        if (group.rank == 1) tensors[1].dtype = 42;
        EXPECT_EQ(td_session_publish(session, tensors, 2), TD_SYNC_FAILED);
        EXPECT_EQ(last_error().rank, 1);
        EXPECT_EQ(last_error().phase, "publish");
        EXPECT_THAT(td_last_error(), HasSubstr("dtype number 42"));
        EXPECT_EQ(td_session_close(session), TD_OK);
    });
}

TEST_F(Capi, reportsAnAllGatherThatFails) {
    td_group group{};
    group.size = sizeof group;
    group.world_size = 2;
    group.all_gather = [](void*, const void*, std::size_t, void*) { return 13; };
    const td_options chosen = options();
    td_session* session = nullptr;
    EXPECT_EQ(td_session_open(&chosen, &group, &session), TD_UNAVAILABLE);
    EXPECT_THAT(td_last_error(), AllOf(HasSubstr("all_gather"), HasSubstr("13")));
    group.all_gather = nullptr;
    EXPECT_EQ(td_session_open(&chosen, &group, &session), TD_INVALID);
}

}  // namespace
}  // namespace tandem::sync
