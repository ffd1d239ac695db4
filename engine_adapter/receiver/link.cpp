#include "engine_adapter/receiver/link.h"

#include <algorithm>
#include <thread>

namespace tandem::engine {

namespace {
// A sleep ends late by about this much; the link keeps busy meanwhile, as a real one with a queue would.
constexpr auto kSlack = std::chrono::microseconds(200);
}  // namespace

void Link::take(std::size_t bytes) {
    if (bytes_per_s_ <= 0 || bytes == 0) return;
    const auto duration = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
    Clock::time_point end;
    {
        const std::lock_guard lock(mutex_);
        free_at_ = end = std::max(free_at_, Clock::now() - kSlack) + duration;
    }
    std::this_thread::sleep_until(end);
}

}  // namespace tandem::engine
