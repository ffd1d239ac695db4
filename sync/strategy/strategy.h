// One strategy of bringing a version into the engines, behind each mode. A session asks for the steps in this
// order, on every rank alike. A step notes its failure in `status` and still takes part in the step's
// collectives, so that the ranks stay in step; it throws only what ends the job.
#pragma once

#include <functional>

#include "common/comm/communicator.h"
#include "sync/codec/quantizer.h"
#include "sync/plan/reshard.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/ledger.h"
#include "sync/strategy/options.h"
#include "sync/strategy/report.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// The session's parts that every strategy works with; borrowed.
struct SyncContext {
    comm::Communicator& world;
    const WeightSource& source;
    const ReshardPlan& plan;
    std::vector<int> local;  // plan's source tensor → index in the source, -1: not on this rank
    const Engines& engines;
    const SessionOptions& options;  // chosen: no zeros
    const Quantizer& quantizer;
    Device device = {};  // of this rank's shards, all of them
};

class SyncStrategy {
  public:
    virtual ~SyncStrategy() = default;
    // The source's values are ready, scales agreed on; the engines still generate. Does all that can be done
    // before the pause. `deadline`: of the whole step, as in transfer.
    virtual void prepare(PushStatus& status, Deadline deadline) = 0;
    // Rank 0, behind prepare, when engine `e` is about to be paused: what may be on its way to it meanwhile. Throws.
    virtual void send_ahead(std::size_t /*e*/) {}
    // The engines are paused and the version is open, or `status` says on rank 0 that they are not:
    // afterwards commit may be called. Fills times.gather, copy and load. all_sent: called on rank 0, perhaps, when only
    // engines can still fail: each has been given its last bucket, and the ledger is full.
    virtual void transfer(PushStatus& status, PhaseTimes& times, Deadline deadline,
                          const std::function<void()>& all_sent) = 0;
    virtual const Ledger& ledger() const = 0;  // on rank 0: of the version under way
    // The push has ended, on every rank.
    virtual void finish(std::int64_t, bool /*committed*/) {}
    // Where this rank may write the shard of source tensor t for the next push, so that it need not be
    // copied; undefined where a strategy has no such place.
    virtual Tensor writable(int /*source_tensor*/) { return {}; }
    // Buckets, bytes, staging.
    virtual void describe(SyncReport& report) const = 0;
};

std::unique_ptr<SyncStrategy> make_gather(const SyncContext& context);
std::unique_ptr<SyncStrategy> make_direct(const SyncContext& context);
std::unique_ptr<SyncStrategy> make_alias(const SyncContext& context);
std::unique_ptr<SyncStrategy> make_delta(const SyncContext& context);

}  // namespace tandem::sync
