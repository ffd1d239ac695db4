// Who copies which rows: every row once, by one of the ranks that hold it, with equal bytes for all as far as
// the layout allows.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/plan/plan.h"

namespace tandem::sync {

// Rows [start, stop) of a tensor, copied by `rank` from its local row `local` on.
struct Assignment {
    int tensor = 0;
    std::int64_t start = 0;
    std::int64_t stop = 0;
    std::int64_t local = 0;
};

std::int64_t row_count(const Shape& shape);     // dim 0, 1 for a scalar
std::int64_t row_elements(const Shape& shape);  // elements of one row

// [rank] → its rows in tensor order. Throws InvalidArgument naming a tensor with rows that no rank holds.
std::vector<std::vector<Assignment>> assign_rows(const std::vector<PlanTensor>& tensors, int world_size);

}  // namespace tandem::sync
