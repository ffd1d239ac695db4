#include "engine_adapter/receiver/push_state.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace tandem::engine {
namespace {

using End = PushState::End;

PushState open_version(std::int64_t version, bool pause = true) {
    PushState push;
    if (pause) push.pause();
    push.begin(version);
    return push;
}

TEST(PushState, WithNothingUnderWayItsEndChangesNothing) {
    PushState push;
    EXPECT_EQ(push.end(true), End::nothing);
    push = open_version(2);
    push.commit(2);
    push.resume();
    EXPECT_FALSE(push.under_way());
    EXPECT_EQ(push.end(false), End::nothing);
}

TEST(PushState, WhatWasNotWrittenIsAsBefore) {
    PushState push;
    push.pause();
    EXPECT_EQ(push.end(true), End::as_before);
    push = open_version(2);
    EXPECT_EQ(push.end(true), End::as_before);
    EXPECT_EQ(push, [] {
        PushState closed = open_version(2);
        closed.end(true);
        return closed;
    }());
    EXPECT_FALSE(push.held() || push.open());
}

TEST(PushState, WhatWasWrittenIsBroken) {
    PushState push = open_version(2);
    push.write();
    EXPECT_EQ(push.end(true), End::broken);
}

TEST(PushState, WhatWasCommittedAndNotResumedIsServedWhereItMay) {
    for (const bool may_serve : {true, false}) {
        PushState push = open_version(2);
        push.write();
        push.commit(2);
        EXPECT_TRUE(push.held() && push.undecided());
        EXPECT_EQ(push.end(may_serve), may_serve ? End::served : End::withheld);
    }
}

// Generation was paused by somebody else, who says when it goes on.
TEST(PushState, WithoutAPauseACommitDecides) {
    PushState push = open_version(2, false);
    push.commit(2);
    EXPECT_FALSE(push.undecided());
    EXPECT_EQ(push.end(false), End::nothing);
}

TEST(PushState, AVersionOpenOverAnUndecidedOneLeavesThatWithheld) {
    PushState push = open_version(2);
    push.commit(2);
    push.pause();
    push.begin(3);
    EXPECT_EQ(push.end(true), End::withheld);
}

TEST(PushState, RequestsOutOfOrderAreRefusedAndChangeNothing) {
    PushState push = open_version(2);
    const PushState before = push;
    EXPECT_THROW(push.pause(), ProtocolError);
    EXPECT_THROW(push.begin(3), ProtocolError);
    EXPECT_THROW(push.resume(), ProtocolError);
    EXPECT_THROW(push.commit(3), ProtocolError);
    EXPECT_EQ(push, before);
    PushState idle;
    EXPECT_THROW(idle.write(), ProtocolError);
    EXPECT_THROW(idle.commit(1), ProtocolError);
    EXPECT_EQ(idle, PushState{});
}

}  // namespace
}  // namespace tandem::engine
