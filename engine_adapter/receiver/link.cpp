#include "engine_adapter/receiver/link.h"

#include <algorithm>
#include <thread>

namespace tandem::engine {

namespace {
// A sleep ends late by about this much; the link stays busy for that time, as a real one with a queue would.
constexpr auto kSlack = std::chrono::microseconds(200);
}  // namespace

void Link::pass(std::size_t bytes) {
    if (bytes == 0) return;
    std::this_thread::sleep_until(book(bytes, Clock::now()));
}

Link::Clock::time_point Link::book(std::size_t bytes, Clock::time_point now) {
    const auto duration = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
    const std::lock_guard lock(mutex_);
    free_at_ = std::max(free_at_, now - kSlack) + duration;
    return free_at_;
}

}  // namespace tandem::engine
