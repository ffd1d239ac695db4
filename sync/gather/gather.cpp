#include "sync/gather/gather.h"

#include "common/error.h"
#include "common/trace.h"
#include "sync/gather/cache.h"

namespace tandem::sync {
namespace {

// A staging arena that stays in the last-level cache is written through it, so that the engine reads it from
// there; a larger one past it.
bool fits_cache(std::size_t bytes) {
    return bytes <= last_level_cache_bytes() / 2;
}

}  // namespace

void Health::fail(std::string at_phase, std::string with_peer, int at_bucket, const std::string& what) {
    failed = true;
    if (failed_here) return;
    failed_here = true;
    phase = std::move(at_phase);
    peer = std::move(with_peer);
    bucket = at_bucket;
    message = what;
}

Gather::Gather(const Plan& plan, const WeightSource& source, std::vector<std::size_t> order,
               const engine::StagingArea& staging, comm::Communicator& world)
    : plan_(plan),
      source_(source),
      order_(std::move(order)),
      staging_(staging),
      world_(world),
      records_(static_cast<std::size_t>(world.size()) *
                   (sizeof(Header) + plan.max_pieces_per_rank * sizeof(ops::Checksum)),
               "sync records", world.memory()) {
    const auto rank = static_cast<std::size_t>(world_.rank());
    const bool non_temporal = !fits_cache(staging_.memory.bytes);
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        const PlanBucket& bucket = plan_.buckets[b];
        auto& items = items_.emplace_back();
        for (std::size_t i = bucket.first_piece[rank]; i < bucket.first_piece[rank + 1]; ++i) {
            const Piece& piece = bucket.pieces[i];
            const PlanTensor& tensor = plan_.tensors[static_cast<std::size_t>(piece.tensor)];
            ops::CopyItem item;
            item.to =
                staging_.slot(static_cast<int>(b) % staging_.slots).subspan(piece.bucket_offset, piece.bytes);
            if (tensor.source_dtype != tensor.info.dtype) {
                item.from_dtype = tensor.source_dtype;
                item.to_dtype = tensor.info.dtype;
            }
            item.checksum = checksums(world_.rank()) + items.size();
            item.non_temporal = non_temporal;
            items.push_back(item);
        }
    }
}

void Gather::prepare() {
    const auto rank = static_cast<std::size_t>(world_.rank());
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        const PlanBucket& bucket = plan_.buckets[b];
        for (std::size_t i = 0; i < items_[b].size(); ++i) {
            const Piece& piece = bucket.pieces[bucket.first_piece[rank] + i];
            const PlanTensor& tensor = plan_.tensors[static_cast<std::size_t>(piece.tensor)];
            const Tensor& local =
                source_.tensors()[order_[static_cast<std::size_t>(piece.tensor)]].tensor.local();
            const std::size_t bytes =
                piece.bytes / dtype_size(tensor.info.dtype) * dtype_size(tensor.source_dtype);
            require(local.dtype() == tensor.source_dtype && piece.source_offset + bytes <= local.bytes(),
                    "tensor '{}' changed its dtype or layout since the session began", tensor.info.name);
            items_[b][i].from = ConstSpan(local.span()).subspan(piece.source_offset, bytes);
        }
    }
}

void Gather::fill(int bucket, Health& health, Stream& stream) {
    stream.enqueue([this, bucket, &health] {
        if (health.failed) return;
        const trace::Scope scope("gather bucket " + std::to_string(bucket), "gather");
        try {
            Stream here = Stream::make_inline();
            ops::batched_copy(here, items_[static_cast<std::size_t>(bucket)]);
        } catch (const std::exception& error) {
            health.fail("gather", fmt::format("rank {}", world_.rank()), bucket, error.what());
        }
    });
}

void Gather::exchange(Health& health, Stream& stream) {
    stream.enqueue([this, &health] { header(world_.rank()).failed = health.failed ? 1 : 0; });
    const comm::GatherItem item{record(world_.rank()), records_.span()};
    world_.all_gather({&item, 1}, stream);
    stream.enqueue([this, &health] {
        for (int rank = 0; rank < world_.size(); ++rank)
            health.failed = health.failed || header(rank).failed != 0;
    });
}

Span Gather::record(int rank) const {
    const std::size_t stride = records_.bytes() / static_cast<std::size_t>(world_.size());
    return records_.span().subspan(static_cast<std::size_t>(rank) * stride, stride);
}

}  // namespace tandem::sync
