// Gather without a rendezvous for each bucket. Rank and engine hand each other the rank's part of a bucket by words of shared
// memory (strategy/relay.h), on the core that both have threads on, and the ranks meet once, at the end, to say what the
// checksums are. So a bucket costs microseconds, and may be so small that its core's own cache still holds it when it is
// loaded.
//
//   rank r, its core     fill 0        fill 1        fill 2        …  exchange of all checksums
//   the engine, there           take 0        take 1        take 2                              verify
// (depth 1; with more slots a rank fills ahead of the engine, and before the pause.)
#pragma once

#include <functional>
#include <memory>

#include "sync/strategy/exchange.h"
#include "sync/strategy/relay.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {

class RelayedBuckets {
  public:
    // Writes this rank's part of a bucket into its slot, and the checksums of its pieces to `checksums`; returns their number.
    // Notes a failure in the status.
    using Fill = std::function<std::size_t(std::size_t bucket, ops::Checksum* checksums)>;

    // Collective, after the engines are attached; null on every rank where they do not take a relay, or somebody wants to see
    // each bucket. Borrows what it is given.
    static std::unique_ptr<RelayedBuckets> make(const SyncContext& context, const BucketPlan& buckets,
                                                Ledger& ledger, std::size_t slots);

    // As SyncStrategy::prepare and ::transfer, one after the other in each push.
    void prepare(PushStatus& status, const Fill& fill);
    void transfer(PushStatus& status, PhaseTimes& times, Deadline deadline, const Fill& fill,
                  const std::function<void()>& all_sent);

  private:
    RelayedBuckets(const SyncContext& context, const BucketPlan& buckets, Ledger& ledger, std::size_t slots);
    void fill_next(PushStatus& status, const Fill& fill);
    void note_all();

    SyncContext context_;
    const BucketPlan& buckets_;
    Ledger& ledger_;
    const std::size_t slots_;
    Relay relay_;
    Exchange<ops::Checksum> exchange_;
    std::size_t pieces_ = 0;  // of this push, whose checksums are in the exchange
};

}  // namespace tandem::sync
