#include "trainer/memory/shard_ledger.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tandem::trainer::memory {

void ShardLedger::Cycle::make_at_least(int least, std::int64_t bytes) {
    sizes_[bytes].least = least;
}

void ShardLedger::Cycle::take(std::int64_t bytes) {
    OfOneSize& size = sizes_[bytes];
    if (size.made < std::max(size.least, least_)) {
        ++size.made;
        ledger_.grow(tag_, bytes);
    } else if (size.idle > 0) {
        --size.idle;
    } else if (size.made < most_) {
        ++size.made;
        ledger_.grow(tag_, bytes);
    } else {
        --size.busy;  // the taker waits for it
    }
}

void ShardLedger::Cycle::give_back(std::int64_t bytes, bool idle) {
    OfOneSize& size = sizes_[bytes];
    ++(idle ? size.idle : size.busy);
}

void ShardLedger::Cycle::all_idle() {
    for (auto& [bytes, size] : sizes_) size.idle += std::exchange(size.busy, 0);
}

void ShardLedger::Cycle::free() {
    for (auto& [bytes, size] : sizes_) {
        ledger_.grow(tag_, -bytes * size.idle);
        size.made -= std::exchange(size.idle, 0);
    }
}

ShardLedger::ShardLedger(Ledger& ledger, const FlatShards& layout, std::size_t groups,
                         const FullyShardOptions& options, bool on_gpu)
    : rounded_(keeps_rounded(options, on_gpu)),
      layout_(layout),
      options_(options),
      reshard_ranks_(options.reshard_after_forward.ranks(layout.ranks())),
      aliases_(layout.ranks() == 1 &&
               ((options.compute_dtype == DType::float32 && !options.offload) || rounded_)),
      staged_(layout.ranks() > 1 && !rounded_ &&
              (options.compute_dtype != DType::float32 ||
               (on_gpu && options.shard_pages != Pages::stay && !options.offload))),
      overlaps_(on_gpu || transfer_overlaps(layout, groups, options.compute_dtype, options.offload)),
      groups_(groups),
      values_(ledger, "unsharded", BufferCycle::kUnlimited, on_gpu ? BufferCycle::kTurns : 0),
      staging_(ledger, "unsharded", BufferCycle::kUnlimited, on_gpu ? BufferCycle::kTurns : 0),
      gradients_(ledger, "unsharded_gradients", FullyShard::kGradientBuffers,
                 on_gpu ? BufferCycle::kTurns : 0),
      unreduced_(ledger, "unsharded_gradients", BufferCycle::kUnlimited, on_gpu ? BufferCycle::kTurns : 0) {
    if (rounded_)
        ledger.grow("unsharded", layout.numel() * static_cast<std::int64_t>(dtype_size(options.compute_dtype)));
    if (!overlaps_) return;
    std::map<std::int64_t, int> groups_of_size;
    for (std::size_t i = 0; i < groups; ++i) {
        const std::int64_t bytes = grad_bytes(static_cast<int>(i));
        gradients_.make_at_least(std::min(FullyShard::kGradientBuffers, ++groups_of_size[bytes]), bytes);
    }
}

std::int64_t ShardLedger::value_bytes(int index) const {
    return shard_numel(index) * layout_.ranks() *
           static_cast<std::int64_t>(dtype_size(options_.compute_dtype));
}

std::int64_t ShardLedger::staging_bytes(int index) const {
    return shard_numel(index) * static_cast<std::int64_t>(dtype_size(options_.compute_dtype));
}

std::int64_t ShardLedger::slice_bytes(int index) const {
    return value_bytes(index) / reshard_ranks_;
}

void ShardLedger::unshard(int index, int prefetch) {
    start_unshard(index);
    drop_staging(index);
    if (prefetch != kNone && overlaps_) start_unshard(prefetch);
}

void ShardLedger::start_unshard(int index) {
    Group& group = at(index);
    if (std::exchange(group.whole, true) || aliases_) return;
    values_.take(value_bytes(index));
    if (group.slice) return drop_slice(index);
    if (options_.offload) staging_.take(shard_numel(index) * 4);
    if (staged_) staging_.take(staging_bytes(index));
    group.staging = true;
}

void ShardLedger::drop_staging(int index) {
    if (!std::exchange(at(index).staging, false)) return;
    if (options_.offload) staging_.give_back(shard_numel(index) * 4, true);
    if (staged_) staging_.give_back(staging_bytes(index), true);
}

void ShardLedger::drop_values(int index) {
    if (std::exchange(at(index).whole, false) && !aliases_) values_.give_back(value_bytes(index), true);
}

void ShardLedger::drop_slice(int index) {
    if (std::exchange(at(index).slice, false)) staging_.give_back(slice_bytes(index), !overlaps_);
}

void ShardLedger::after_forward(int index) {
    if (reshard_ranks_ == 0) return;
    if (reshard_ranks_ != layout_.ranks() && layout_.ranks() > 1) {
        staging_.take(slice_bytes(index));
        at(index).slice = true;
    }
    drop_values(index);
}

void ShardLedger::begin_gradients(int index) {
    Group& group = at(index);
    if (layout_.ranks() == 1 || std::exchange(group.grads, true)) return;
    group.grads_owner = sync_ ? &gradients_ : &unreduced_;
    group.grads_owner->take(grad_bytes(index));
}

void ShardLedger::after_backward(int index) {
    drop_values(index);
    drop_slice(index);
    if (sync_ && layout_.ranks() > 1) reduce(index);
}

void ShardLedger::reduce(int index) {
    // Idle when its size is asked for again: the gathers in between come after the reduction, or the taker waits.
    at(index).grads_owner->give_back(grad_bytes(index), true);
    at(index).grads = false;
}

void ShardLedger::finish() {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const int index = static_cast<int>(i);
        drop_staging(index);
        drop_values(index);
        drop_slice(index);
    }
    for (Cycle* cycle : {&values_, &staging_, &gradients_, &unreduced_}) cycle->all_idle();
}

void ShardLedger::finish_gradients() {
    if (!sync_) return;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].grads) reduce(static_cast<int>(i));
    }
    for (Cycle* cycle : {&gradients_, &unreduced_}) cycle->all_idle();
}

void ShardLedger::free_buffers() {
    for (Cycle* cycle : {&values_, &staging_, &gradients_, &unreduced_}) cycle->free();
}

}  // namespace tandem::trainer::memory
