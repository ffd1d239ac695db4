// Checks that a directory's tensors are the parameters of an architecture: all are there, with their shapes
// and a dtype that can be computed with, and no others. Reads headers only, but for a repeated tied
// embedding.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "common/model/safetensors.h"

namespace tandem::model {

// Whether a tensor says nothing that config.json and the other tensors do not: buffers of the rotary embedding
// (…rotary_emb.inv_freq), which older checkpoints hold, and the lm_head.weight of a tied model (ties_embeddings). No engine
// takes them, and the files of two versions need not agree about them.
bool says_nothing_new(const std::string& name, bool tied);

// Throws ConfigError naming file and tensor. Returns the tensors that are left unused because they say
// nothing new: a tied lm_head.weight only when it equals the embedding byte for byte.
std::vector<std::string> check_weights(const Safetensors& files, const ModelConfig& config);

// Only the shapes, and only of those tensors that are there. Throws ConfigError naming file and tensor.
void check_shapes(const Safetensors& files, const ModelConfig& config);

}  // namespace tandem::model
