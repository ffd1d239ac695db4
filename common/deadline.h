// A point in time by which a wait must have ended. Every blocking call takes one, or documents the default
// that it uses.
#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;

    static Deadline after(std::chrono::nanoseconds duration) { return Deadline(Clock::now() + duration); }
    static Deadline after_ms(long long milliseconds) {
        return after(std::chrono::milliseconds(milliseconds));
    }

    Clock::time_point at() const { return at_; }
    bool passed() const { return Clock::now() >= at_; }
    // This one, or `duration` from now where that is earlier.
    Deadline within(std::chrono::nanoseconds duration) const {
        return Deadline(std::min(at_, Clock::now() + duration));
    }
    // Time left, never negative.
    std::chrono::nanoseconds left() const {
        const auto now = Clock::now();
        return now >= at_ ? std::chrono::nanoseconds(0) : std::chrono::nanoseconds(at_ - now);
    }

  private:
    explicit Deadline(Clock::time_point at) : at_(at) {}
    Clock::time_point at_;
};

}  // namespace tandem
