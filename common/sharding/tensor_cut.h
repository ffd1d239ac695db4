// How tensor parallelism cuts a model: each parameter by its role, and the degrees that fit.
#pragma once

#include <string>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/model/parameters.h"
#include "common/sharding/pipeline_stages.h"

namespace tandem {

// The axes that a parameter makes of tp, outermost first, and how each holds it: ("tp": S(0), S(1) or R), or for keys and
// values with fewer heads than ranks ("tp_heads": S(0), "tp_copies": R).
struct TensorCut {
    std::vector<std::string> axes;
    std::vector<int> sizes;
    Placements placements;
};

// Throws InvalidArgument naming the tensor and its heads where tp does not fit.
TensorCut tensor_cut(const model::ParameterSpec& spec, int tp);

// Of a parameter, this rank's part. Throws as tensor_cut does.
Shape cut_shape(const model::ParameterSpec& spec, int tp, int tp_rank);
// Elements of stages of a model on their rank 0, which has the most, where tp cuts each parameter and `shards` ranks share its
// part.
std::int64_t largest_shard(const model::DecoderSizes& sizes, int tp, int shards,
                           const std::vector<DecoderPart>& parts);

// The degrees up to `most`, ascending, by which query heads divide, and by which key and value heads divide or which they
// divide. 1 is always among them.
std::vector<int> tensor_degrees(const model::DecoderSizes& sizes, int most);
// Throws InvalidArgument that names the degrees that fit.
void check_tensor_degree(const model::DecoderSizes& sizes, int tp);

}  // namespace tandem
