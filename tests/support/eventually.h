// Waiting for what other processes and threads do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace tandem::test {

// Polls until it holds; false after `limit`.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

}  // namespace tandem::test
