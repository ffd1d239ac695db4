// The trainer's mesh of a bench or a plan: sizes alone ("2,1"), or axes by name ("dp=4,dp_replicate=2,tp=2"), as a trainer's
// configuration has them. With names parameters lie as FSDP over dp and cp, and tensor parallelism inside it, hold them.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/mesh/parallel_dims.h"
#include "common/model/parameters.h"

namespace tandem::sync {

struct TrainerMesh {
    TrainerMesh(std::initializer_list<int> given = {}) : sizes(given) {}
    // Throws BadInput: neither form, an axis twice, one that is none (pp, ep), or degrees that do not go together.
    static TrainerMesh parse(const std::string& text);

    bool named() const { return !axes.empty(); }
    std::int64_t ranks() const;  // at most 2^31; sizes are positive
    std::string text() const;
    nlohmann::json json() const;      // [2, 1], or {"dp": 4, "tp": 2}
    ParallelDegrees degrees() const;  // of a named one; dp includes dp_replicate

    std::vector<int> sizes;
    std::vector<std::string> axes;  // of each size; empty: it has no names
};

// "2,1", or "dp=4,tp=2", of what json() made.
std::string mesh_text(const nlohmann::json& mesh);

// Where a parameter lies: all ranks as a mesh, row-major, and a placement for each of its axes.
struct Holding {
    std::vector<int> sizes;
    std::vector<std::string> axes;
    Placements placements;
};

// (dp_replicate, fsdp, tp); of keys and values with fewer heads than tp (dp_replicate, fsdp, tp_heads, tp_copies): each head lies
// on several ranks. Throws InvalidArgument naming the tensor and the heads that tp does not divide.
Holding holding_of(const ParallelDegrees& degrees, const model::ParameterSpec& spec);

}  // namespace tandem::sync
