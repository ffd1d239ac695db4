#include "sync/push/filler.h"

#include "common/error.h"

namespace tandem::sync {

Filler::Filler(const ReshardPlan& plan, const BucketPlan& buckets, const WeightSource& source,
               std::vector<int> local, int rank)
    : plan_(plan),
      buckets_(buckets),
      source_(source),
      local_(std::move(local)),
      rank_(static_cast<std::size_t>(rank)) {}

const Tensor& Filler::tensor(int source_tensor) const {
    const int index = local_[static_cast<std::size_t>(source_tensor)];
    return source_.tensors()[static_cast<std::size_t>(index)].tensor.local();
}

void Filler::locate() {
    for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
        for (std::size_t i = begin(b); i < end(b); ++i) {
            const Move& move = buckets_.pieces[i].move;
            const Tensor& local = tensor(move.source_tensor);
            const std::int64_t last =
                move.source_offset + (move.rows - 1) * move.source_stride + move.row_elements;
            require(local.dtype() == source_dtype(plan_, move) && last <= local.numel(),
                    "tensor '{}' changed its dtype or layout since the session began",
                    plan_.source().tensors[static_cast<std::size_t>(move.source_tensor)].name);
        }
    }
}

const std::byte* Filler::address(std::size_t index) const {
    const Move& move = buckets_.pieces[index].move;
    const Tensor& local = tensor(move.source_tensor);
    return local.raw() + static_cast<std::size_t>(move.source_offset) * dtype_size(local.dtype());
}

std::size_t Filler::stride(std::size_t index) const {
    const Move& move = buckets_.pieces[index].move;
    return static_cast<std::size_t>(move.source_stride) * dtype_size(source_dtype(plan_, move));
}

std::size_t Filler::row_bytes(std::size_t index) const {
    const Move& move = buckets_.pieces[index].move;
    return static_cast<std::size_t>(move.row_elements) * dtype_size(target_of(plan_, move).dtype);
}

ops::CopyItem Filler::item(std::size_t index) const {
    const Move& move = buckets_.pieces[index].move;
    const DType from = source_dtype(plan_, move);
    const DType to = target_of(plan_, move).dtype;
    ops::CopyItem item;
    item.from = {address(index), static_cast<std::size_t>(move.row_elements) * dtype_size(from)};
    item.to = {nullptr, row_bytes(index)};
    if (from != to) {
        item.from_dtype = from;
        item.to_dtype = to;
    }
    item.rows = move.rows;
    item.from_stride = stride(index);
    item.to_stride = row_bytes(index);
    return item;
}

ops::Checksum Filler::copy(std::size_t index, std::byte* to, std::size_t to_stride, bool non_temporal) const {
    ops::Checksum checksum;
    ops::CopyItem item = this->item(index);
    item.to.data = to;
    item.to_stride = to_stride;
    item.checksum = &checksum;
    item.non_temporal = non_temporal;
    Stream here = Stream::make_inline();
    ops::batched_copy(here, {&item, 1});
    return checksum;
}

ops::Checksum Filler::checksum(std::size_t index) const {
    return ops::copy_checksum(item(index));
}

}  // namespace tandem::sync
