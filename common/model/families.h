// The families that one decoder serves, as a table: norms, biases, and what transformers takes for what config.json leaves
// out. Trainer and engine go by the fields of ModelConfig alone.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem::model {

struct Family {
    enum class Bias : unsigned char {
        none,
        always,
        asked
    };  // asked: of q, k, v and o by attention_bias, else by mlp_bias

    const char* architecture;
    const char* model_type;
    bool qk_norm;
    Bias qkv_bias, o_bias, mlp_bias;
    // 0: as many as heads; hidden_size / heads.
    std::int64_t kv_heads, head_dim;
    std::int64_t context;
    bool sliding_window;  // config.json says whether one is used
};

// Whether a model has a bias whose key in config.json is `asked`, or absent: false.
constexpr bool has_bias(Family::Bias rule, bool asked) {
    return rule == Family::Bias::always || (rule == Family::Bias::asked && asked);
}

// A model is written as the first family that has its norms and biases.
constexpr std::array kFamilies{
    Family{"Qwen3ForCausalLM", "qwen3", true, Family::Bias::asked, Family::Bias::asked, Family::Bias::none,
           32, 128, 32768, true},
    Family{"Qwen2ForCausalLM", "qwen2", false, Family::Bias::always, Family::Bias::none, Family::Bias::none,
           32, 0, 32768, true},
    Family{"LlamaForCausalLM", "llama", false, Family::Bias::asked, Family::Bias::asked, Family::Bias::asked,
           0, 0, 2048, false},
};

// Null: none of them. A mixture of experts is of the family that its dense layers are of: "qwen3_moe".
constexpr const Family* family_of_type(std::string_view model_type) {
    constexpr std::string_view kMixture = "_moe";
    if (model_type.ends_with(kMixture)) model_type.remove_suffix(kMixture.size());
    for (const Family& family : kFamilies) {
        if (model_type == family.model_type) return &family;
    }
    return nullptr;
}

}  // namespace tandem::model
