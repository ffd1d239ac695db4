// `inspect shard`: which indices of a tensor every rank of a mesh holds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dtensor/layout.h"

namespace tandem::inspect {

struct ShardReport {
    Shape shape;
    std::vector<int> mesh;
    Placements placements;
    std::vector<LocalLayout> ranks;
};

// Throws InvalidArgument when the placements do not belong to the mesh or the shape.
ShardReport inspect_shard(const Shape& shape, const std::vector<int>& mesh, const Placements& placements);
nlohmann::ordered_json to_json(const ShardReport& report);
std::string to_text(const ShardReport& report);

}  // namespace tandem::inspect
