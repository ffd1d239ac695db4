// The buckets of one push, as one program on a stream. Rank 0 hands each whole bucket to the engine, so that
// the engine copies bucket n while the ranks gather bucket n+1; a slot is filled again when the engine is
// done with it.
//
//   all ranks   fill 0 · exchange 0 · fill 1 · exchange 1 · fill 2 · exchange 2 · …
//   rank 0                     load 0            load 1            load 2
// Rank 0 enters exchange n only when the engine is done with bucket n + 1 - slots, so that the end of
// exchange n also says that the slot of bucket n + 1 is free: one rendezvous for each bucket. A failure
// anywhere empties the rest of the program; its collectives still run, so that no rank waits in vain.
#pragma once

#include <chrono>
#include <functional>

#include "sync/gather/gather.h"
#include "sync/session/report.h"

namespace tandem::sync {

class Pipeline {
  public:
    struct Options {
        std::chrono::milliseconds load_deadline{};
        std::function<void(int bucket, Span slot)>
            after_gather;  // rank 0, before the engine is told; for tests
    };

    // engine: rank 0's; null on the other ranks. Everything is borrowed.
    Pipeline(const Plan& plan, Gather& gather, comm::Communicator& world, engine::Engine* engine,
             const engine::StagingArea& staging, Options options);

    // Queues the whole push. `health` and `times` may be read when the returned event is done.
    Event run(Health& health, PhaseTimes& times, Stream& stream);
    // After a push without failure, on rank 0: what commit needs.
    ops::Checksum manifest(std::int64_t version) const;

  private:
    void load(int bucket, Health& health);
    void wait_loaded(int bucket, Health& health, PhaseTimes& times);

    const Plan& plan_;
    Gather& gather_;
    comm::Communicator& world_;
    engine::Engine* engine_;
    engine::StagingArea staging_;
    Options options_;
    std::vector<engine::Bucket> buckets_;  // rank 0: as sent; the checksums change
    std::vector<engine::TensorInfo> infos_;
    std::vector<std::vector<std::pair<int, std::size_t>>>
        entries_of_;  // [tensor]: (bucket, entry) by tensor_offset
    int posted_ = 0;  // buckets that the engine was told of
    std::chrono::steady_clock::time_point mark_;
};

}  // namespace tandem::sync
