#include "sync/session/state.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/error.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kStates = 4;
constexpr std::size_t kTransitions = 4;
using Row = std::array<std::optional<State>, kTransitions>;
// clang-format off
constexpr std::array<Row, kStates> kTable{{
    //             pushing      committed    aborted        lost
    /* idle   */ {{State::open, {},          {},            {}}},
    /* open   */ {{{},          State::idle, State::failed, State::broken}},
    /* failed */ {{State::open, {},          {},            {}}},
    /* broken */ {{{},          {},          {},            {}}},
}};
// clang-format on
constexpr std::array<std::string_view, kTransitions> kTransitionNames{"push", "commit", "abort", "loss"};

}  // namespace

std::string_view state_name(State state) {
    constexpr std::array<std::string_view, kStates> names{"idle", "open", "failed", "broken"};
    return names[static_cast<std::size_t>(state)];
}

State next_state(State state, Transition transition) {
    const auto& next = kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(transition)];
    if (next) return *next;
    throw ProtocolError(fmt::format("{} in a sync session that is {}",
                                    kTransitionNames[static_cast<std::size_t>(transition)],
                                    state_name(state)));
}

void VersionState::push(std::int64_t version) {
    enforce(version > version_ && version > pushing_, "version {} is not above {}", version,
            std::max(version_, pushing_));
    state_ = next_state(state_, Transition::pushing);
    pushing_ = version;
}

void VersionState::commit() {
    state_ = next_state(state_, Transition::committed);
    version_ = pushing_;
}

}  // namespace tandem::sync
