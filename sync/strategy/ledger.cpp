#include "sync/strategy/ledger.h"

namespace tandem::sync {

Ledger::Ledger(const ReshardPlan& plan, const BucketPlan& buckets) : plan_(plan), buckets_(buckets) {
    for (const auto& first : buckets.engine_first) checksums_.emplace_back(first.back());
    transfers_.resize(checksums_.size());
}

void Ledger::note(std::size_t piece, std::span<const ops::Checksum> checksums) {
    for (const ops::Checksum& checksum : checksums) {
        const Piece& one = buckets_.pieces[piece++];
        checksums_[static_cast<std::size_t>(one.move.engine_rank)][one.transfer] = checksum;
    }
}

std::span<const ops::Checksum> Ledger::of(std::size_t engine, std::size_t bucket) const {
    const auto& first = buckets_.engine_first[engine];
    return std::span(checksums_[engine]).subspan(first[bucket], first[bucket + 1] - first[bucket]);
}

ops::Checksum Ledger::manifest(std::int64_t version, std::size_t engine) const {
    return engine::manifest_checksum(version, plan_.engine()[engine], transfers_[engine], checksums_[engine]);
}

}  // namespace tandem::sync
