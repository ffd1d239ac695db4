// This rank's part of a bucketed all-gather, Shard(0) → Replicate, through shared memory: it writes its own
// rows straight to their final place in the slot that every rank and the engine see, cast and checksummed on
// the way. The bucket is whole when every rank has done so; the exchange of checksums that follows says it.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/memory.h"
#include "common/ops/batched_copy.h"
#include "engine_adapter/engine.h"
#include "sync/plan/plan.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// What a push knows of its own failure so far. Touched only by work of the sync's stream while that runs.
struct Health {
    bool failed = false;  // here or, after an exchange, on any rank
    bool failed_here = false;
    std::string phase;  // of the failure here
    std::string peer;
    std::string message;
    int bucket = -1;

    void fail(std::string at_phase, std::string with_peer, int at_bucket,
              const std::string& what);  // the first counts
};

class Gather {
  public:
    // `order[t]` is the index in the source of the plan's tensor t. Everything is borrowed.
    Gather(const Plan& plan, const WeightSource& source, std::vector<std::size_t> order,
           const engine::StagingArea& staging, comm::Communicator& world);

    // Once before a push: looks up where the source's pieces lie now. Throws InvalidArgument when a tensor
    // has changed.
    void prepare();
    // Queues the copy of this rank's pieces of a bucket into its slot (bucket modulo slots), which must be
    // free again.
    void fill(int bucket, Health& health, Stream& stream);
    // Queues the exchange that makes the bucket whole: every rank learns every piece's checksum and whether
    // any rank has failed. Collective, also after a failure, so that the ranks stay in step.
    void exchange(Health& health, Stream& stream);
    // Of one piece of the bucket exchanged last; rank `rank`'s piece number `index`. On the stream, before
    // the next fill.
    const ops::Checksum& checksum(int rank, std::size_t index) const { return checksums(rank)[index]; }

  private:
    struct alignas(16) Header {
        std::uint64_t failed = 0;
    };
    Span record(int rank) const;
    Header& header(int rank) const { return *reinterpret_cast<Header*>(record(rank).data); }
    ops::Checksum* checksums(int rank) const {
        return reinterpret_cast<ops::Checksum*>(record(rank).data + sizeof(Header));
    }

    const Plan& plan_;
    const WeightSource& source_;
    std::vector<std::size_t> order_;
    engine::StagingArea staging_;
    comm::Communicator& world_;
    Buffer records_;                                 // [rank][Header, checksums]: what one exchange gathers
    std::vector<std::vector<ops::CopyItem>> items_;  // [bucket]: this rank's copies
};

}  // namespace tandem::sync
