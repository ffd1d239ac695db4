// Checks that a directory's tensors are the parameters of an architecture: all are there, with their shapes
// and a dtype that can be computed with, and no others. Reads headers only, but for a repeated tied
// embedding.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "common/model/safetensors.h"

namespace tandem::model {

// Throws ConfigError naming file and tensor. Returns the tensors that are left unused because they say
// nothing new: buffers of the rotary embedding (…rotary_emb.inv_freq), which older checkpoints hold, and the
// lm_head.weight of a tied model when it equals the embedding byte for byte.
std::vector<std::string> check_weights(const Safetensors& files, const ModelConfig& config);

// Only the shapes, and only of those tensors that are there. Throws ConfigError naming file and tensor.
void check_shapes(const Safetensors& files, const ModelConfig& config);

}  // namespace tandem::model
