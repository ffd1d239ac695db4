// Options of a session.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "common/device/device.h"

namespace tandem::sync {

enum class Mode : std::uint8_t { gather, direct, alias, delta };  // session/modes.h has their traits

// Timeouts of the phases. Ranks wait for each other no longer than the world communicator's own
// timeout, which must be longer than each of these but the transfer, and what it takes to give up: abort and
// resume.
struct Deadlines {
    std::chrono::milliseconds prepare{30'000};
    std::chrono::milliseconds pause{30'000};
    std::chrono::milliseconds begin{10'000};
    std::chrono::milliseconds load{30'000};       // of one bucket
    std::chrono::milliseconds transfer{120'000};  // of all buckets
    std::chrono::milliseconds commit{30'000};
    std::chrono::milliseconds abort{10'000};
    std::chrono::milliseconds resume{10'000};
};

struct SessionOptions {
    Mode mode = Mode::gather;
    std::size_t bucket_bytes = 0;  // at most, for one slot; 0: chosen for this machine
    int depth = 0;                 // slots, at least the mode's least_depth; 0: chosen
    // How gather writes its staging: past the cache, or through it. None: chosen, push by push (cost/cache_path.h).
    std::optional<bool> past_cache = {};
    // Free choices and predictions rest on measured costs (sync/cost), which are kept for later sessions.
    bool calibrate = false;  // measure them again
    Deadlines deadlines;
    // For tests: called on rank 0 with the memory of every bucket that is about to be given to the engines.
    std::function<void(int bucket, Span memory)> before_load;
    // For tests: what rank 0 takes for the distance of cores (cost/cores.h) at each look.
    std::function<double()> core_ns;
};

}  // namespace tandem::sync
