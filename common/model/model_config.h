// A model's architecture: what config.json of a Hugging Face directory says. Decoder of Qwen3's shape;
// without qk-norm it is Llama's (no rope scaling, no biases).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"

namespace tandem::model {

struct ModelConfig {
    std::string architecture = "Qwen3ForCausalLM";
    std::string model_type = "qwen3";
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t max_position_embeddings = 0;
    float rms_norm_eps = 1e-6f;
    float rope_theta = 10000.0f;
    bool tie_word_embeddings = true;
    bool qk_norm = true;
    std::int32_t eos_token_id = -1;                // -1: none
    std::vector<std::int32_t> more_eos_token_ids;  // when config.json lists several
    DType torch_dtype = DType::float32;

    // Every rule that the code relies on: positive sizes, heads % kv_heads == 0, even head_dim. Throws
    // ConfigError naming `file` and the key.
    void validate(const std::string& file) const;
    std::int64_t parameter_count() const;
};

// Reads DIR/config.json. Throws ConfigError: missing or malformed file, unsupported architecture (names the
// supported).
ModelConfig read_model_config(const std::string& directory);
ModelConfig parse_model_config(const std::string& json_text, const std::string& file);
// config.json that transformers loads. qk_norm decides the architecture that is written: Qwen3ForCausalLM
// with it, LlamaForCausalLM without.
std::string to_json(const ModelConfig& config);

}  // namespace tandem::model
