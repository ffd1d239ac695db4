// The rows of a sharded tensor that a rank has, and those of them that it writes: ranks that hold the same
// rows share the work.
#pragma once

#include <cstdint>

#include "common/dtensor/dtensor.h"

namespace tandem::trainer {

struct RowRange {
    std::int64_t first = 0;  // of the whole tensor
    std::int64_t count = 0;
};

// For tensors that are cut along dim 0 by at most one mesh axis, as a policy's are; others throw
// InvalidArgument.
RowRange held_rows(const DTensor& tensor);
// A part of held_rows; over all ranks every row once.
RowRange written_rows(const DTensor& tensor);
// The local elements of rows that are held.
Tensor local_rows(const DTensor& tensor, const RowRange& rows);

}  // namespace tandem::trainer
