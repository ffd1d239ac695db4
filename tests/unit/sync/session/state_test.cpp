// The version's state machine, row by row of its table.
#include "sync/session/state.h"

#include <gtest/gtest.h>

#include <array>

#include "common/error.h"

namespace tandem::sync {
namespace {

TEST(VersionState, TheTableIsWhatTheHeaderSays) {
    const std::array kStates{State::idle, State::open, State::failed, State::broken};
    const std::array kTransitions{Transition::pushing, Transition::committed, Transition::aborted,
                                  Transition::lost};
    int allowed = 0;
    for (const State state : kStates) {
        for (const Transition transition : kTransitions) {
            try {
                next_state(state, transition);
                ++allowed;
            } catch (const ProtocolError&) {
            }
        }
    }
    EXPECT_EQ(allowed, 5);
    EXPECT_EQ(next_state(State::idle, Transition::pushing), State::open);
    EXPECT_EQ(next_state(State::open, Transition::committed), State::idle);
    EXPECT_EQ(next_state(State::open, Transition::aborted), State::failed);
    EXPECT_EQ(next_state(State::open, Transition::lost), State::broken);
    EXPECT_EQ(next_state(State::failed, Transition::pushing), State::open);
}

TEST(VersionState, VersionsOnlyGrow) {
    VersionState state;
    EXPECT_EQ(state.version(), 0);
    EXPECT_THROW(state.push(0), InvalidArgument);
    state.push(3);
    EXPECT_THROW(state.push(4), ProtocolError);
    state.commit();
    EXPECT_EQ(state.version(), 3);
    EXPECT_THROW(state.push(3), InvalidArgument);
    state.push(4);
    state.abort();
    EXPECT_EQ(state.version(), 3);
    EXPECT_THROW(state.push(4),
                 InvalidArgument);  // an aborted version is spent: its name must not mean two things
    state.push(5);
    state.lose();
    EXPECT_THROW(state.push(6), ProtocolError);
}

}  // namespace
}  // namespace tandem::sync
