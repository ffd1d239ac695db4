// The indices that each rank holds: pure arithmetic over shapes, mesh sizes and placements.
#pragma once

#include <vector>

#include "common/dtensor/placement.h"
#include "common/tensor/shape.h"

namespace tandem {

// The part of a tensor that a layout gives the rank at `coordinates`: local shape, and for every tensor dim
// the runs [start, stop) of global indices in local order (several with strided shards). An empty dim has no
// run.
struct LocalLayout {
    Shape shape;
    std::vector<std::vector<Run>> runs;  // [tensor dim][run]
    // PyTorch's global offset: where each dim's first run starts; the global size for a dim cut empty.
    Shape offsets;
    friend bool operator==(const LocalLayout&, const LocalLayout&) = default;
};

// Placements apply from the outermost mesh axis to the innermost; each cuts what the ones before it left.
LocalLayout local_layout(const Shape& global_shape, const std::vector<int>& mesh_sizes,
                         const Placements& placements, const std::vector<int>& coordinates);
Shape local_shape(const Shape& global_shape, const std::vector<int>& mesh_sizes, const Placements& placements,
                  const std::vector<int>& coordinates);

}  // namespace tandem
