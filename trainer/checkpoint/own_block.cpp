#include "trainer/checkpoint/own_block.h"

namespace tandem::trainer {

TensorBlock written_block(const DTensor& tensor) {
    if (!tensor.is_here()) return held_block(tensor);
    std::int64_t replicas = 1, replica = 0;
    for (int axis = 0; axis < tensor.mesh().ndim(); ++axis) {
        if (!tensor.placements()[static_cast<std::size_t>(axis)].is_replicate()) continue;
        replicas *= tensor.mesh().size(axis);
        replica = replica * tensor.mesh().size(axis) + tensor.mesh().coordinate(axis);
    }
    TensorBlock block = held_block(tensor);
    const ShardRange share = shard_range(block.rows, replicas, replica);
    block.first_row += share.offset;
    block.rows = share.size;
    return block;
}

Tensor local_rows(const DTensor& tensor, std::int64_t first_row, std::int64_t rows) {
    return tensor.local().rows(first_row - held_block(tensor).first_row, rows);
}

}  // namespace tandem::trainer
