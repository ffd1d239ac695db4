#include "trainer/checkpoint/own_rows.h"

#include "common/error.h"

namespace tandem::trainer {

RowRange held_rows(const DTensor& tensor) {
    const LocalLayout layout = tensor.layout();
    require(!layout.runs.empty() && layout.runs[0].size() <= 1,
            "a tensor of shape {} placed {} is not whole rows", to_string(tensor.shape()),
            to_string(tensor.placements()));
    for (std::size_t dim = 1; dim < layout.shape.size(); ++dim) {
        require(layout.shape[dim] == tensor.shape()[dim], "a tensor placed {} is cut along dim {}",
                to_string(tensor.placements()), dim);
    }
    return {layout.offsets[0], layout.shape[0]};
}

RowRange written_rows(const DTensor& tensor) {
    std::int64_t replicas = 1, replica = 0;
    for (int axis = 0; axis < tensor.mesh().ndim(); ++axis) {
        if (!tensor.placements()[static_cast<std::size_t>(axis)].is_replicate()) continue;
        replicas *= tensor.mesh().size(axis);
        replica = replica * tensor.mesh().size(axis) + tensor.mesh().coordinate(axis);
    }
    const RowRange held = held_rows(tensor);
    const ShardRange share = shard_range(held.count, replicas, replica);
    return {held.first + share.offset, share.size};
}

Tensor local_rows(const DTensor& tensor, const RowRange& rows) {
    return tensor.local().rows(rows.first - held_rows(tensor).first, rows.count);
}

}  // namespace tandem::trainer
