// The block of a sharded tensor that a rank writes: ranks that hold the same elements share the work by rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/dtensor/block.h"
#include "common/dtensor/dtensor.h"

namespace tandem::trainer {

using NamedTensors = std::vector<std::pair<std::string, DTensor>>;

// Rows of held_block, with all its columns; over all ranks every element once. Throws InvalidArgument as held_block does.
TensorBlock written_block(const DTensor& tensor);
// The local elements of rows that are held: [rows, …]. Aliases.
Tensor local_rows(const DTensor& tensor, std::int64_t first_row, std::int64_t rows);

}  // namespace tandem::trainer
