#include "trainer/fsdp/flat_shards.h"

#include "common/align.h"
#include "common/dtensor/placement.h"

namespace tandem::trainer {
namespace {

constexpr std::int64_t kAlignElements = 32;  // a cache line of bfloat16

}  // namespace

FlatShards::FlatShards(std::span<const Parameter> parameters, const std::vector<std::vector<int>>& groups,
                       int ranks, int rank)
    : ranks_(ranks), entries_(parameters.size()) {
    for (const std::vector<int>& group : groups) {
        const std::int64_t begin = numel_;
        for (const int index : group) {
            Entry& entry = entries_[static_cast<std::size_t>(index)];
            const Parameter& parameter = parameters[static_cast<std::size_t>(index)];
            require(!parameter.value_shape.empty(), "parameter {} is a scalar, which cannot be sharded",
                    parameter.name);
            const std::int64_t rows = parameter.value_shape[0];
            const ShardRange range = shard_range(rows, ranks, rank);
            entry.shape = parameter.value_shape;
            entry.row_numel = rows == 0 ? 0 : tandem::numel(parameter.value_shape) / rows;
            entry.padded_rows = padded_shard_size(rows, ranks);
            entry.local_rows = range.size;
            entry.first_row = range.offset;
            entry.offset = numel_;
            numel_ += round_up(entry.padded_numel(), kAlignElements);
        }
        ranges_.push_back({begin, numel_ - begin});
    }
}

Tensor FlatShards::padded(const Tensor& flat, int parameter) const {
    const Entry& e = entry(parameter);
    return flat.rows(e.offset, e.padded_numel());
}

Tensor FlatShards::local(const Tensor& flat, int parameter) const {
    return without_padding(padded(flat, parameter), parameter);
}

Tensor FlatShards::without_padding(const Tensor& padded_shard, int parameter) const {
    const Entry& e = entry(parameter);
    Shape shape = e.shape;
    shape[0] = e.local_rows;
    return padded_shard.rows(0, e.local_rows * e.row_numel).reshape(shape);
}

Tensor FlatShards::full_padded(const Tensor& full, int group, int parameter) const {
    const Entry& e = entry(parameter);
    return full.rows((e.offset - group_range(group).offset) * ranks_, e.padded_numel() * ranks_);
}

Tensor FlatShards::full(const Tensor& full_buffer, int group, int parameter) const {
    const Entry& e = entry(parameter);
    return full_padded(full_buffer, group, parameter).rows(0, tandem::numel(e.shape)).reshape(e.shape);
}

}  // namespace tandem::trainer
