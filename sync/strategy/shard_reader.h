// This rank's pieces, read from the source's shards (of the CPU or of a GPU): copied to wherever a mode of
// syncing wants them, or only checksummed. Cast or quantisation and checksum are fused into the copy; rows
// that lie apart are brought together.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/ops/batched_copy.h"
#include "sync/plan/buckets.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {

class ShardReader {
  public:
    // Borrows `buckets` and what the context refers to.
    ShardReader(const SyncContext& context, const BucketPlan& buckets);

    // On GPUs, collective: the event that every rank records after what its run() writes, by rank, for the
    // regions that engines read. Empty on the CPU; an event that cannot be shared is none (run() waits too).
    std::vector<engine::RegionEvent> share_event(comm::Communicator& world);
    // Before each push: finds the source's shards again, which may have moved, for all that reads them. Throws
    // BadInput when a tensor has changed its dtype, size or device.
    void locate();
    struct Order {
        std::size_t index = 0;    // of a piece of the plan, which must be this rank's
        std::byte* to = nullptr;  // null: only the checksum, which nothing quantised has before it is copied
        std::size_t to_stride = 0;
    };
    // Copies pieces, as one batch on the shards' device, over when it returns: their elements in the engine's dtype, rows
    // to_stride bytes apart. checksums: one for each, of what was written. Throws DeadlineExceeded.
    void run(std::span<const Order> orders, bool non_temporal, ops::Checksum* checksums,
             Deadline deadline) const;

    // Where piece `index`, which must be this rank's, lay at the last locate().
    struct Rows {
        const std::byte* data = nullptr;
        std::size_t stride = 0;  // bytes from row to row
    };
    const Rows& rows(std::size_t index) const { return rows_[index]; }
    const Tensor& tensor(int source_tensor) const;  // the local piece, as the trainer holds it

    std::size_t begin(std::size_t bucket) const { return buckets_.begin(bucket, rank_); }
    std::size_t end(std::size_t bucket) const { return buckets_.end(bucket, rank_); }
    std::size_t row_bytes(std::size_t index) const;  // in the engine's dtype

  private:
    const ReshardPlan& plan_;
    const BucketPlan& buckets_;
    const WeightSource& source_;
    const Quantizer& quantizer_;
    std::vector<int> local_;
    std::size_t rank_;
    std::vector<Rows> rows_;                // [piece]
    mutable std::optional<Stream> stream_;  // of the shards' GPU
    mutable std::optional<SharedEvent> written_;
    mutable std::vector<ops::CopyItem> list_;  // scratch
};

}  // namespace tandem::sync
