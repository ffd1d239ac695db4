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
        const auto add = [&](const char* name, Shape shape) {
            specs.push_back({prefix + name + ".weight", std::move(shape), layer});
        };
        add("input_layernorm", {hidden});
        add("self_attn.q_proj", {q_out, hidden});
        add("self_attn.k_proj", {kv_out, hidden});
        add("self_attn.v_proj", {kv_out, hidden});
        if (config.qk_norm) {
            add("self_attn.q_norm", {config.head_dim});
            add("self_attn.k_norm", {config.head_dim});
        }
        add("self_attn.o_proj", {hidden, q_out});
        add("post_attention_layernorm", {hidden});
        add("mlp.gate_proj", {ffn, hidden});
        add("mlp.up_proj", {ffn, hidden});
        add("mlp.down_proj", {hidden, ffn});
    }
    specs.push_back({"model.norm.weight", {hidden}});
    if (!config.tie_word_embeddings) specs.push_back({"lm_head.weight", {config.vocab_size, hidden}});
    return specs;
}

}  // namespace tandem::model
