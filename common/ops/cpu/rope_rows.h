// Rotation of the heads of one token, for the ops on the CPU that rotate among other things.
#pragma once

#include <cstdint>

#include "common/ops/rope_table.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

// The cosines and sines of a position, [head_dim]: in the table, or computed into `scratch` where that is shorter.
const float* rope_row(const RopeTable::Rows& rows, std::int64_t position, float* scratch);

// Rotates `heads` heads of x [..., head_dim] in place, which lie one behind the other from element `offset` on; `sign`
// -1 turns back. scratch [heads * head_dim].
void rotate_heads(const Tensor& x, std::int64_t offset, std::int64_t heads, const float* row, float sign,
                  float* scratch);

}  // namespace tandem::ops::detail
