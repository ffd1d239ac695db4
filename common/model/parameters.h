// The parameters of a model: Hugging Face names and shapes, in the one order that trainer, sync and engine
// all use.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "common/tensor/shape.h"

namespace tandem::model {

struct ParameterSpec {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       // global
    int layer = -1;    // -1: embedding, final norm, head
};

// model.embed_tokens.weight; then each layer: input_layernorm, q_proj, k_proj, v_proj, [q_norm, k_norm],
// o_proj, post_attention_layernorm, gate_proj, up_proj, down_proj, a projection's bias right after its
// weight; then model.norm.weight; then lm_head.weight when untied.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

}  // namespace tandem::model
