// The part of a tensor that a rank holds, where that is one range of rows by one range of columns: what files and reports of
// sharded tensors are made of. Pure arithmetic.
#pragma once

#include <cstdint>

#include "common/dtensor/dtensor.h"
#include "common/tensor/shape.h"

namespace tandem {

// Rows are indices of dim 0; columns count the elements of a row, all dims after the first as one. A tensor of one dim has
// one column.
struct TensorBlock {
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;

    std::int64_t end_row() const { return first_row + rows; }
    std::int64_t end_column() const { return first_column + columns; }
    std::int64_t numel() const { return rows * columns; }
    friend bool operator==(const TensorBlock&, const TensorBlock&) = default;
};

// All of a tensor of at least one dim. Throws InvalidArgument.
TensorBlock whole_block(const Shape& shape);
// What this rank holds: no rows of a tensor that is elsewhere. Throws InvalidArgument where that is not one block: dims after the second are cut, a cut leaves
// several runs, elements are terms of a sum, or there is no dim.
TensorBlock held_block(const DTensor& tensor);
// The elements that both have; of no rows or no columns: none.
TensorBlock common_block(const TensorBlock& a, const TensorBlock& b);
// The shape that a block of a tensor has by itself. Its columns end where dim 1's do: throws InvalidArgument.
Shape block_shape(const Shape& shape, const TensorBlock& block);

// Calls visit(position in a, position in b, elements) for what of `part`, which both have, lies in one run in both of them,
// each by itself row-major: all of it where both have its columns and no others, else row by row.
template <typename Visit>
void for_each_run(const TensorBlock& part, const TensorBlock& a, const TensorBlock& b, const Visit& visit) {
    if (part.numel() == 0) return;
    const bool one = part.columns == a.columns && part.columns == b.columns;
    const std::int64_t rows = one ? part.rows : 1;
    for (std::int64_t row = part.first_row; row < part.end_row(); row += rows) {
        visit((row - a.first_row) * a.columns + part.first_column - a.first_column,
              (row - b.first_row) * b.columns + part.first_column - b.first_column, rows * part.columns);
    }
}

}  // namespace tandem
