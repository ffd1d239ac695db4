// `inspect mesh`: the axes that seven degrees of parallelism make of a number of ranks, and who meets whom
// along each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/mesh/parallel_dims.h"

namespace tandem::inspect {

struct MeshReport {
    struct Axis {
        std::string name;
        int size = 1;
        bool exists = false;
        std::vector<std::vector<int>> groups;  // global ranks
    };
    int world_size = 1;
    ParallelDegrees degrees;
    std::vector<Axis> axes;
    int fsdp_gradient_divide_factor = 1;
    int non_data_parallel_size = 1;
    int seq_len_divisor = 1;
};

// `axes`: the ones to report, in this order; none: all ten. Throws InvalidArgument.
MeshReport inspect_mesh(const ParallelDegrees& degrees, int world_size,
                        const std::vector<std::string>& axes = {});
nlohmann::ordered_json to_json(const MeshReport& report);
std::string to_text(const MeshReport& report);

}  // namespace tandem::inspect
