// A model's architecture: what config.json of a Hugging Face directory says. One decoder serves all families
// (families.h), which differ in norms, biases and defaults only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/model/rope.h"
#include "common/tensor/dtype.h"

namespace tandem::model {

// What decides a decoder's parameters: their names and shapes. A size of 0: the model has no such thing.
struct DecoderSizes {
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;  // of dense layers
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;
    std::int64_t head_dim = 0;
    bool tie_word_embeddings = true;
    bool qk_norm = true;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;  // gate, up and down of dense layers
    // Of benches and plans alone: trainer and engine compute neither of the two.
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

struct ModelConfig : DecoderSizes {
    std::int64_t max_position_embeddings = 0;
    float rms_norm_eps = 1e-6f;
    double rope_theta = 10000.0;
    RopeScaling rope_scaling;
    std::int32_t eos_token_id = -1;                // -1: none
    std::vector<std::int32_t> more_eos_token_ids;  // when config.json lists several
    // Of the tensors, by config.json; float16 too, which nothing computes in.
    DType torch_dtype = DType::float32;

    // The family that has these norms and biases.
    std::string architecture() const;
    std::string model_type() const;
    // Every rule that the code relies on: positive sizes, heads % kv_heads == 0, even head_dim, norms and
    // biases of one of the families. Throws ConfigError naming `file` and the key.
    void validate(const std::string& file) const;
    std::int64_t parameter_count() const;
    RopeFrequencies rope_frequencies() const;
};

// Reads DIR/config.json. Throws ConfigError: missing or malformed file, unsupported architecture (names the
// supported).
ModelConfig read_model_config(const std::string& directory);
// Whether config.json says that the head is the embedding; false where it cannot be read, whatever the architecture is.
// It decides alone, also over a file with a head that differs: so do vLLM and SGLang and did transformers 4 (5 then
// warns, and takes the file's). What reads a directory's weights here refuses one that contradicts itself so
// (check_weights.h).
bool ties_embeddings(const std::filesystem::path& directory);
ModelConfig parse_model_config(const std::string& json_text, const std::string& file);
// config.json that transformers, old (4) and new (5), loads to the same model.
std::string to_json(const ModelConfig& config);

}  // namespace tandem::model
