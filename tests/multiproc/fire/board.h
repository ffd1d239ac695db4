// What the test and its trainers tell each other while they run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tests/support/shared_page.h"

namespace tandem::fire {

// How patient a trainer is with each phase, and for how long the engine is with a trainer that says nothing.
inline constexpr int kPatienceMs = 1000;
inline constexpr int kLeaseMs = 3000;

struct Board {
    std::array<char, 128> address;         // that trainers connect to; set before the first one starts
    std::atomic<std::int64_t> version;     // pushed last by any trainer: they count together
    std::atomic<std::int64_t> pushes;      // that succeeded
    std::atomic<std::int64_t> failures;    // pushes that threw
    std::atomic<std::int64_t> sessions;    // that were made
    std::atomic<std::int64_t> longest_ms;  // of a push, good or bad
    std::atomic<bool> stop;                // trainers end after the push in hand
};
using BoardMemory = test::SharedPage<Board>;

}  // namespace tandem::fire
