// Models by name or from a file, for benches and plans: real shapes, synthetic weights, no download.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "sync/plan/engine_layout.h"

namespace tandem::sync {

// Architecture as config.json says it, dense or a mixture of experts, with plain or latent attention. A size
// of 0: the model has no such thing.
struct ModelShapes {
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;
    std::int64_t head_dim = 0;
    bool tie_word_embeddings = false;
    bool qk_norm = false;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;  // of dense layers
    // Experts in the layers from first_k_dense_replace on.
    std::int64_t num_experts = 0;
    std::int64_t moe_intermediate_size = 0;
    std::int64_t n_shared_experts = 0;
    std::int64_t first_k_dense_replace = 0;
    // Latent attention (MLA) where kv_lora_rank > 0; then num_key_value_heads and head_dim say nothing.
    std::int64_t q_lora_rank = 0;
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_rope_head_dim = 0;
    std::int64_t qk_nope_head_dim = 0;
    std::int64_t v_head_dim = 0;
};

std::vector<std::string> shape_names();  // dense ones and mixtures of experts
// A dense model. Throws InvalidArgument listing the names.
model::ModelConfig model_by_name(const std::string& name);

// In the order of model::parameter_specs. Names are Hugging Face's.
std::vector<ModelTensor> model_tensors(const ModelShapes& shapes);
// One of shape_names(), or a JSON file: config.json's keys, or {"tensors": [{"name", "shape", "parallel":
// "replicate" | "column" | "row" | "expert" | "vocabulary", "heads"}]}. Throws ConfigError naming file and key, and
// InvalidArgument listing the names for what is neither.
std::vector<ModelTensor> model_tensors(const std::string& name_or_file);
std::vector<ModelTensor> read_model_tensors(const std::string& json_text, const std::string& file);

}  // namespace tandem::sync
