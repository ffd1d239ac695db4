// `inspect redistribute`: what turns one layout of a tensor into another, step by step, and what it costs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dtensor/redistribute_plan.h"
#include "common/tensor/dtype.h"

namespace tandem::inspect {

struct RedistributeReport {
    struct Transform {
        RedistributeStep::Kind kind = RedistributeStep::Kind::none;
        int axis = 0;  // of the mesh
        Placement from;
        Placement to;
        std::vector<std::int64_t> bytes;  // that each rank receives from others
    };
    Shape shape;
    DType dtype = DType::float32;
    std::vector<int> mesh;
    Placements from;
    Placements to;
    std::vector<Transform> transforms;  // in order; empty when nothing changes
    std::vector<std::int64_t> bytes;    // of all transforms, by rank
};

// Throws InvalidArgument when placements do not belong to the mesh or the shape, or no user may ask for the
// change (a new Partial).
RedistributeReport inspect_redistribute(const Shape& shape, DType dtype, const std::vector<int>& mesh,
                                        const Placements& from, const Placements& to);
nlohmann::ordered_json to_json(const RedistributeReport& report);
std::string to_text(const RedistributeReport& report);

}  // namespace tandem::inspect
