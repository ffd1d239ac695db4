// From a DTensor's layout to the rows that a rank holds.
#pragma once

#include <vector>

#include "common/dtensor/dtensor.h"
#include "sync/plan/plan.h"

namespace tandem::sync {

// The rows that the rank at `coordinates` holds, as `rank`'s holdings. Throws InvalidArgument for layouts
// that rows do not describe (a shard of another dim than 0, a partial sum).
std::vector<Holding> holdings(const Shape& shape, const std::vector<int>& mesh_sizes,
                              const Placements& placements, const std::vector<int>& coordinates, int rank);
std::vector<Holding> holdings(const DTensor& tensor, int rank);  // of this process's own piece

}  // namespace tandem::sync
