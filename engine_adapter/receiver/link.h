// A link of a given bandwidth between trainer and engine, where there is none: bytes pass one after the other
// at that many bytes a second, from any thread. For measurements on one machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>

namespace tandem::engine {

class Link {
  public:
    using Clock = std::chrono::steady_clock;
    explicit Link(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}  // above 0
    // Waits until `bytes` more have passed. Thread-safe: callers take their turn in order of arrival.
    void pass(std::size_t bytes);
    // When `bytes` that are asked for at `now` have passed; they take their turn now.
    Clock::time_point book(std::size_t bytes, Clock::time_point now);

  private:
    const double bytes_per_s_;
    std::mutex mutex_;
    Clock::time_point free_at_{};  // when the last byte asked for so far has passed
};

}  // namespace tandem::engine
