// Result of one push: sizes, durations, time per phase.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::sync {

// Milliseconds, as rank 0 sees them:
//
//   a push                    prepare + total_ms + finish
//   total_ms                  pause + gather + load + resume (copy runs beside gather and load; commit is in load)
//   beside it, in the engine  pack
struct PhaseTimes {
    double prepare = 0;  // before the pause: source ready, what the mode can do ahead
    double pause = 0;    // the engine stops reading its weights and opens the version
    double gather = 0;   // ranks filling buckets, and waiting for each other
    double copy = 0;     // the engine copying and verifying buckets
    double load = 0;     // what gather did not hide: waiting for the engine, and the commit
    double commit = 0;   // the part of load in which the engines made the version theirs
    double resume = 0;
    double finish = 0;  // after it: the ranks agree on the outcome, the mode notes what the engines now hold
    // Engines laying the version from before this push out for their products, at the first request after they had it;
    // the slowest. 0: none did, or none says.
    double pack = 0;
};

struct SyncReport {
    std::int64_t version = 0;
    std::size_t bytes = 0;        // in the engine's weights
    std::size_t bytes_moved = 0;  // that crossed from the trainer's memory to the engine's
    int buckets = 0;
    std::size_t bucket_bytes = 0;  // of one slot
    int depth = 0;
    bool relayed = false;           // gather: buckets went by a relay (relay.h), without a message for each
    std::size_t staging_bytes = 0;  // depth × bucket_bytes at most, on this host
    bool dense = true;              // delta: everything was sent, since an engine lacked the base
    double total_ms = 0;            // pause to resume
    double predicted_ms = 0;        // of total_ms; 0: no prediction
    double predicted_prepare_ms = 0;
    PhaseTimes phase_ms;
};

}  // namespace tandem::sync
