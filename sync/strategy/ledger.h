// Rank 0's record of one session: the transfers of each engine, and the checksums of the version in flight.
#pragma once

#include <span>
#include <vector>

#include "engine_adapter/engine.h"
#include "sync/plan/buckets.h"

namespace tandem::sync {

class Ledger {
  public:
    Ledger(const ReshardPlan& plan, const BucketPlan& buckets);

    // The checksums of a rank's pieces of a bucket, in the plan's order.
    void note(std::size_t bucket, int rank, std::span<const ops::Checksum> checksums);
    std::span<const ops::Checksum> of(std::size_t engine, std::size_t bucket) const;  // in transfer order
    std::span<const ops::Checksum> of(std::size_t engine) const { return checksums_[engine]; }
    void set(std::size_t piece, const ops::Checksum& checksum);  // index in BucketPlan::pieces
    // The manifest of the version whose checksums were noted last.
    ops::Checksum manifest(std::int64_t version, std::size_t engine) const;

  private:
    const ReshardPlan& plan_;
    const BucketPlan& buckets_;
    std::vector<std::vector<ops::Checksum>> checksums_;  // [engine][transfer]
    std::vector<engine::TransferPlan> outline_;          // [engine]: which transfer is of which tensor
};

}  // namespace tandem::sync
