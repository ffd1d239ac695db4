// How slow a peer may be while a body or an answer travels: it must move 64 KiB in each stall_timeout, and 1 MiB a
// second over the whole, after a start of idle_timeout. Slower ones hold memory that others need.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace tandem::http {

class Pace {
  public:
    using Clock = std::chrono::steady_clock;
    Pace(std::chrono::milliseconds start, std::chrono::milliseconds stall)
        : stall_(stall), whole_(Clock::now() + start), window_(Clock::now() + stall) {}

    void moved(std::size_t bytes) {
        constexpr std::size_t kWindowBytes = std::size_t{64} << 10;
        total_ += bytes;
        in_window_ += bytes;
        if (in_window_ < kWindowBytes) return;
        in_window_ = 0;
        window_ = Clock::now() + stall_;
    }
    // The peer is too slow when that has passed and nothing more has moved.
    Clock::time_point limit() const {
        return std::min(window_, whole_ + std::chrono::microseconds(total_ * 1'000'000 >> 20));
    }

  private:
    std::chrono::milliseconds stall_;
    Clock::time_point whole_, window_;
    std::size_t in_window_ = 0;
    std::size_t total_ = 0;
};

}  // namespace tandem::http
