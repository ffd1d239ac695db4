// The version's state machine on the trainer's side, as a table.
//
//   state    pushing     committed   aborted   lost
//   idle     open        -           -         -
//   open     -           idle        failed    broken
//   failed   open        -           -         -
//   broken   -           -           -         -
// idle: the engine serves version(). failed: it serves that or refuses, until a push succeeds. broken: the trainer's
// own communicator is gone; a new session is needed. "-": ProtocolError.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::sync {

enum class State : std::uint8_t { idle, open, failed, broken };
enum class Transition : std::uint8_t { pushing, committed, aborted, lost };

std::string_view state_name(State state);
State next_state(State state, Transition transition);  // throws ProtocolError

class VersionState {
  public:
    // Versions only grow: throws InvalidArgument when `version` is not above every version pushed before.
    void push(std::int64_t version);
    void commit();
    void abort() { state_ = next_state(state_, Transition::aborted); }
    void lose() { state_ = next_state(state_, Transition::lost); }

    State state() const { return state_; }
    std::int64_t version() const { return version_; }  // committed last; 0: none

  private:
    State state_ = State::idle;
    std::int64_t version_ = 0;
    std::int64_t pushing_ = 0;
};

}  // namespace tandem::sync
