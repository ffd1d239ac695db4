// The planner's input: the trainer's tensors spread over groups of ranks, and each engine rank's tensors.
#pragma once

#include <string>
#include <vector>

#include "common/dtensor/layout.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

// Ranks that hold a tensor between them: a mesh of global ranks (row-major), one placement for each axis.
struct SourceGroup {
    std::vector<int> ranks;
    std::vector<int> mesh_sizes;
    Placements placements;
    friend bool operator==(const SourceGroup&, const SourceGroup&) = default;
};

// Each of its groups holds the whole tensor; several groups are replicas of each other. A rank is in one of
// them at most, and its local tensor is what local_layout says of its coordinates.
struct SourceTensor {
    std::string name;  // Hugging Face name
    Shape shape;       // global
    DType dtype = DType::float32;
    std::vector<int> groups;  // indices in SourceLayout::groups
};

struct SourceLayout {
    int world_size = 1;
    std::vector<SourceGroup> groups;  // each layout once, however many tensors have it
    std::vector<SourceTensor> tensors;
};

// [engine rank]: its tensors, whose parts name the source's (engine_adapter/engine.h).
using EngineLayout = std::vector<std::vector<engine::TensorInfo>>;

}  // namespace tandem::sync
