// The order of a push, as a value that rank 0 asks what to do next and tells how it went. Pure; Session carries it out,
// and tests/unit/sync/protocol explores it against the engines' side (engine_adapter/receiver/push_state.h).
//
//   pause every engine → begin at every engine → transfer → commit at every engine → resume every engine
//
// A failure up to the last commit: nothing more is begun, and every engine that was spoken to is told to abort. From the
// first resume on the version is decided: every engine is told to resume, whatever becomes of the others. An engine that
// cannot be told hears of it by the end of its lease, and does then not serve a version that others may lack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace tandem::sync {

enum class PushStep : std::uint8_t { pause, begin, transfer, commit, resume, abort };

class PushProtocol {
  public:
    struct Next {
        PushStep step;
        std::size_t engine;  // 0 for transfer, which concerns all of them at once
        friend bool operator==(const Next&, const Next&) = default;
    };

    explicit PushProtocol(std::size_t engines) : engines_(static_cast<std::uint32_t>(engines)) {
        skip_empty_steps();
    }

    // None: the push is over.
    std::optional<Next> next() const;
    // What next() said has been carried out, or has not: refused, or no answer in time, whatever the engine does.
    void done(bool ok);
    // Something else failed, such as another trainer rank. Without effect once the version is decided.
    void fail();

    // All engines have the version, and serve it or will when they can be told: the next push starts from it.
    bool decided() const { return decided_; }
    bool failed() const { return failed_; }
    friend bool operator==(const PushProtocol&, const PushProtocol&) = default;

  private:
    void skip_empty_steps();
    std::uint32_t count() const;

    std::uint32_t engines_ = 0;
    std::uint32_t engine_ = 0;
    std::uint32_t told_ = 0;  // engines that a pause was sent to
    PushStep step_ = PushStep::pause;
    bool failed_ = false;
    bool decided_ = false;
    bool over_ = false;
};
static_assert(
    std::has_unique_object_representations_v<PushProtocol>);  // states are told apart by their bytes

}  // namespace tandem::sync
