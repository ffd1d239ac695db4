// Waiting for what other processes and threads do.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace tandem::test {

// Polls until it holds, ever less often; false after `limit`.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    using Clock = std::chrono::steady_clock;
    using std::chrono::microseconds;
    const auto begin = Clock::now();
    while (!condition()) {
        const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
        if (waited > limit) return false;
        std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(200), microseconds(10'000)));
    }
    return true;
}

}  // namespace tandem::test
