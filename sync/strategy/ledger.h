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

    // The transfers of an engine, whose pieces lie where `place` says (plan/buckets.h); kept for its manifest.
    const engine::TransferPlan& transfers_to(std::size_t engine, const PlacePiece& place = {}) {
        transfers_[engine] = transfer_plan(plan_, buckets_, static_cast<int>(engine), place);
        return transfers_[engine];
    }

    // The checksums of pieces that follow each other in BucketPlan::pieces, from that index on.
    void note(std::size_t piece, std::span<const ops::Checksum> checksums);
    std::span<const ops::Checksum> of(std::size_t engine, std::size_t bucket) const;  // in transfer order
    std::span<const ops::Checksum> of(std::size_t engine) const { return checksums_[engine]; }
    // The manifest of the version whose checksums were noted last; after transfers_to().
    ops::Checksum manifest(std::int64_t version, std::size_t engine) const;

  private:
    const ReshardPlan& plan_;
    const BucketPlan& buckets_;
    std::vector<std::vector<ops::Checksum>> checksums_;  // [engine][transfer]
    std::vector<engine::TransferPlan> transfers_;        // [engine]
};

}  // namespace tandem::sync
