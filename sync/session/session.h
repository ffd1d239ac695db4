// A trainer's standing sync with one engine: planned once, then push(version) after every optimizer step. All
// ranks of the world call every function together (except the const ones); rank 0 talks to the engine.
//
//   push:   prepare → pause → begin → [gather n+1 ∥ copy and load n] → commit | abort → resume
// A failure on any rank ends the push on every rank with the same SyncError, which names rank, phase, peer
// and bucket; the engine has then been told to abort and refuses to generate until a push succeeds (state.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"
#include "sync/session/agree.h"
#include "sync/session/report.h"
#include "sync/session/state.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// How long each phase may take. Ranks wait for each other no longer than the world communicator's own
// timeout, which must be longer than each of these.
struct Deadlines {
    std::chrono::milliseconds prepare{30'000};
    std::chrono::milliseconds pause{30'000};
    std::chrono::milliseconds begin{10'000};
    std::chrono::milliseconds load{30'000};       // of one bucket
    std::chrono::milliseconds transfer{120'000};  // of all buckets
    std::chrono::milliseconds commit{30'000};
    std::chrono::milliseconds abort{10'000};
    std::chrono::milliseconds resume{30'000};
};

struct SessionOptions {
    std::size_t bucket_bytes = 0;  // at most, for one slot; 0: chosen for this machine
    int depth = 0;                 // slots, at least 2; 0: chosen
    Deadlines deadlines;
    // For tests: called on rank 0 with every gathered bucket before the engine hears of it.
    std::function<void(int bucket, Span slot)> after_gather;
};

struct WeightsMatch {
    bool match = false;
    std::string first_mismatch;  // the first tensor that differs; empty when all match
};

class Session {
  public:
    // Plans, makes the staging arena and attaches the engine (rank 0 passes it, the others null). `source` is
    // borrowed. Throws SyncError on every rank alike: engine and source hold different tensors, a layout that
    // gather cannot read.
    Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
            std::unique_ptr<engine::Engine> engine, SessionOptions options = {});
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Blocks until the engine serves the source's current values as `version`, which must grow from push to
    // push. The report's times are rank 0's; other ranks report their own gather.
    SyncReport push(std::int64_t version);

    // Compares what the engine really holds with what the trainer really holds: full tensors, gathered one by
    // one apart from the sync's own way and cast to the engine's dtype, by XXH3-128. The same answer on every
    // rank.
    WeightsMatch weights_match();

    State state() const;
    std::int64_t version() const;  // committed last; 0: none

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::sync
