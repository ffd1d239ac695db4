#include "common/dtensor/block.h"

#include <algorithm>

#include "common/error.h"

namespace tandem {
namespace {

// Elements of one index of dim 1; 1 where there is none.
std::int64_t after_second_dim(const Shape& shape) {
    return shape.size() < 3 ? 1 : numel({shape.begin() + 2, shape.end()});
}

}  // namespace

TensorBlock whole_block(const Shape& shape) {
    require(!shape.empty(), "a tensor of no dims has no rows");
    return {0, shape[0], 0, numel({shape.begin() + 1, shape.end()})};
}

TensorBlock held_block(const DTensor& tensor) {
    if (!tensor.is_here()) return {0, 0, 0, whole_block(tensor.shape()).columns};
    const LocalLayout layout = tensor.layout();
    bool one = !layout.shape.empty();
    for (const Placement& placement : tensor.placements()) one = one && !placement.is_partial();
    for (std::size_t dim = 0; one && dim < layout.shape.size(); ++dim)
        one = dim < 2 ? layout.runs[dim].size() <= 1 : layout.shape[dim] == tensor.shape()[dim];
    require(one, [&] {
        return fmt::format("a tensor of shape {} placed {} is not one block of rows and columns",
                           to_string(tensor.shape()), to_string(tensor.placements()));
    });
    const std::int64_t scale = after_second_dim(layout.shape);
    const bool flat = layout.shape.size() == 1;
    return {layout.offsets[0], layout.shape[0], flat ? 0 : layout.offsets[1] * scale,
            flat ? 1 : layout.shape[1] * scale};
}

TensorBlock common_block(const TensorBlock& a, const TensorBlock& b) {
    TensorBlock both;
    both.first_row = std::max(a.first_row, b.first_row);
    both.rows = std::max<std::int64_t>(0, std::min(a.end_row(), b.end_row()) - both.first_row);
    both.first_column = std::max(a.first_column, b.first_column);
    both.columns = std::max<std::int64_t>(0, std::min(a.end_column(), b.end_column()) - both.first_column);
    return both;
}

Shape block_shape(const Shape& shape, const TensorBlock& block) {
    const TensorBlock whole = whole_block(shape);
    Shape result = shape;
    result[0] = block.rows;
    if (block.columns == whole.columns) return result;
    const std::int64_t scale = after_second_dim(shape);
    require(shape.size() > 1 && scale > 0 && block.first_column % scale == 0 && block.columns % scale == 0,
            "columns from {} on, {} of them, are not whole indices of dim 1 of {}", block.first_column,
            block.columns, to_string(shape));
    result[1] = block.columns / scale;
    return result;
}

}  // namespace tandem
