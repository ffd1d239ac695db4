#include "sync/cost/probe_source.h"

#include <algorithm>

namespace tandem::sync {

ProbeSource::ProbeSource(const std::vector<ConstSpan>& shards, DType from, DType to, std::size_t own_bytes)
    : from_(from), to_(to) {
    for (const ConstSpan& shard : shards) {
        if (shard.bytes >= kLeastShard) shards_.push_back(shard);
    }
    if (!shards_.empty()) return;
    constexpr const char* kTag = "calibration";
    own_ = SharedArena::create(kTag, std::max(own_bytes, kLeastShard), kTag);
    own_.touch();
    shards_.push_back(own_.span());
}

ops::CopyItem ProbeSource::next(std::size_t bytes) {
    ops::CopyItem item;
    std::size_t from = bytes;
    if (from_ != to_) {
        item.from_dtype = from_;
        item.to_dtype = to_;
        from = bytes / dtype_size(to_) * dtype_size(from_);
    }
    if (position_ + from > shards_[shard_].bytes) {
        position_ = 0;
        shard_ = (shard_ + 1) % shards_.size();
    }
    item.from = shards_[shard_].subspan(position_, from);
    item.from_stride = from;
    position_ += from;
    return item;
}

}  // namespace tandem::sync
