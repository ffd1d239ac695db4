#include "common/model/parameters.h"

namespace tandem::model {

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t q_out = config.num_attention_heads * config.head_dim;
    const std::int64_t kv_out = config.num_key_value_heads * config.head_dim;
    const std::int64_t ffn = config.intermediate_size;

    std::vector<ParameterSpec> specs;
    specs.push_back({"model.embed_tokens.weight", {config.vocab_size, hidden}});
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        const auto norm = [&](const char* name, std::int64_t size) {
            specs.push_back({prefix + name + ".weight", {size}, layer});
        };
        const auto linear = [&](const char* name, std::int64_t out, std::int64_t in, bool bias) {
            specs.push_back({prefix + name + ".weight", {out, in}, layer});
            if (bias) specs.push_back({prefix + name + ".bias", {out}, layer});
        };
        norm("input_layernorm", hidden);
        linear("self_attn.q_proj", q_out, hidden, config.qkv_bias);
        linear("self_attn.k_proj", kv_out, hidden, config.qkv_bias);
        linear("self_attn.v_proj", kv_out, hidden, config.qkv_bias);
        if (config.qk_norm) {
            norm("self_attn.q_norm", config.head_dim);
            norm("self_attn.k_norm", config.head_dim);
        }
        linear("self_attn.o_proj", hidden, q_out, config.o_bias);
        norm("post_attention_layernorm", hidden);
        linear("mlp.gate_proj", ffn, hidden, config.mlp_bias);
        linear("mlp.up_proj", ffn, hidden, config.mlp_bias);
        linear("mlp.down_proj", hidden, ffn, config.mlp_bias);
    }
    specs.push_back({"model.norm.weight", {hidden}});
    if (!config.tie_word_embeddings) specs.push_back({"lm_head.weight", {config.vocab_size, hidden}});
    return specs;
}

}  // namespace tandem::model
