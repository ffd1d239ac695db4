// Pushes that are under way: waited for, aborted, and in nobody's way but their own session's.
#include <barrier>
#include <string>
#include <thread>

#include "tests/unit/sync/capi/capi_fixture.h"

namespace tandem::sync {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(Capi, pushesInTheBackground) {
    td_session* session = open();
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    td_push* push = nullptr;
    ASSERT_EQ(td_session_push_async(session, 3, &push), TD_OK) << td_last_error();
    EXPECT_EQ(td_session_push(session, 4, nullptr), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("td_push_free"));
    EXPECT_EQ(td_session_close(session), TD_INVALID);
    td_report report{};
    report.size = sizeof report;
    ASSERT_EQ(td_push_wait(push, 20, &report), TD_OK) << td_last_error();
    EXPECT_EQ(report.version, 3);
    ASSERT_EQ(td_push_wait(push, 0, &report), TD_OK) << td_last_error();
    EXPECT_EQ(td_push_free(push), TD_OK);
    EXPECT_EQ(held(target_, 0), a_);
    receiver_.reset();
    ASSERT_EQ(td_session_push_async(session, 4, &push), TD_OK) << td_last_error();
    EXPECT_EQ(td_push_wait(push, 20, &report), TD_SYNC_FAILED);
    EXPECT_EQ(last_error().phase, "pause");
    EXPECT_EQ(td_push_free(push), TD_OK);
    EXPECT_EQ(td_session_close(session), TD_OK);
}

// Whether the push had got as far as its commit is a matter of chance; that nothing comes after is not.
TEST_F(Capi, abortsForGood) {
    td_session* session = open();
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    td_push* push = nullptr;
    ASSERT_EQ(td_session_push_async(session, 1, &push), TD_OK) << td_last_error();
    EXPECT_EQ(td_push_abort(push, "enough of it"), TD_OK);
    const int outcome = td_push_wait(push, 20, nullptr);
    EXPECT_THAT(outcome, AnyOf(TD_OK, TD_UNAVAILABLE));
    if (outcome != TD_OK) {
        EXPECT_THAT(td_last_error(), HasSubstr("enough of it"));
    }
    EXPECT_EQ(td_push_free(push), TD_OK);
    const std::int64_t version = target_.version();
    EXPECT_THAT(version, AnyOf(0, 1));
    EXPECT_NE(td_session_push(session, 2, nullptr), TD_OK);
    EXPECT_EQ(target_.version(), version);
    EXPECT_EQ(td_session_close(session), TD_OK);
}

// Of many rounds, so that both threads are there at once.
TEST_F(Capi, refusesTheSecondOfTwoThreads) {
    td_session* session = open();
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    for (std::int64_t version = 1; version <= 50; ++version) {
        std::barrier start(2);
        td_push* pushes[] = {nullptr, nullptr};
        int outcomes[] = {TD_OK, TD_OK};
        std::string refusal;  // of the one that is late
        const auto begin = [&](int mine) {
            start.arrive_and_wait();
            outcomes[mine] = td_session_push_async(session, version, &pushes[mine]);
            if (outcomes[mine] != TD_OK) refusal = td_last_error();
        };
        std::thread other(begin, 1);
        begin(0);
        other.join();
        EXPECT_THAT(outcomes, UnorderedElementsAre(TD_OK, TD_INVALID)) << version;
        EXPECT_THAT(refusal, HasSubstr("a push of this session is not freed yet: td_push_free"));
        for (td_push* push : pushes) {
            EXPECT_TRUE(push == nullptr || td_push_wait(push, 20, nullptr) == TD_OK) << td_last_error();
            EXPECT_EQ(td_push_free(push), TD_OK);
        }
        EXPECT_EQ(target_.version(), version);
        if (HasFailure()) break;
    }
    EXPECT_EQ(td_session_close(session), TD_OK);
}

}  // namespace
}  // namespace tandem::sync
