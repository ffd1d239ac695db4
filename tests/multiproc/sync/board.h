// What a test and the ranks that it started tell each other while they run: a page of shared memory. The test
// opens it to them by its path, /proc/PID/fd/FD, in TEST_BOARD.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tests/support/shared_page.h"

namespace tandem::sync {

struct Board {
    static constexpr int kMaxRanks = 4;
    struct RankPart {
        std::atomic<int> pushes;         // that succeeded
        std::atomic<std::int64_t> took;  // the last one, microseconds
        std::atomic<int> rounds;         // the last one that succeeded
        std::atomic<int> failures;       // pushes that threw
        std::array<char, 1024> message;  // of the last failure
    };
    std::array<RankPart, kMaxRanks> ranks;

    // A round: what the ranks do next. Everything else is set before `round` grows.
    std::atomic<int> round;
    std::array<char, 128>
        engine;          // connect to it with a new session; empty: go on with the one that there is
    std::int64_t first;  // version; 0: one more than the last
    int pushes;          // then compare the weights; 0: push until it fails
    bool last;           // then end

    std::atomic<int> hold_bucket;  // rank 0 stops before it gives this bucket to the engine; 0: none
    std::atomic<bool> held;        // it has stopped
};

using BoardMemory = test::SharedPage<Board>;

}  // namespace tandem::sync
