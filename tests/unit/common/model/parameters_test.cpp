// Names, shapes and order of the parameters.
#include "common/model/parameters.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <array>
#include <utility>

namespace tandem::model {
namespace {

ModelConfig small() {
    ModelConfig config;
    config.vocab_size = 16;
    config.hidden_size = 8;
    config.intermediate_size = 24;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.max_position_embeddings = 32;
    return config;
}

std::vector<std::string> names(const ModelConfig& config) {
    std::vector<std::string> result;
    for (const ParameterSpec& spec : parameter_specs(config)) result.push_back(spec.name);
    return result;
}

TEST(Parameters, OneLayerInOrder) {
    ModelConfig config = small();
    config.num_hidden_layers = 1;
    config.tie_word_embeddings = false;
    const std::string layer = "model.layers.0.";
    EXPECT_THAT(names(config),
                testing::ElementsAre("model.embed_tokens.weight", layer + "input_layernorm.weight",
                                     layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
                                     layer + "self_attn.v_proj.weight", layer + "self_attn.q_norm.weight",
                                     layer + "self_attn.k_norm.weight", layer + "self_attn.o_proj.weight",
                                     layer + "post_attention_layernorm.weight",
                                     layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
                                     layer + "mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"));
}

TEST(Parameters, ShapesAndLayers) {
    const auto specs = parameter_specs(small());
    EXPECT_EQ(specs.size(), 1u + 2u * 11u + 1u);
    EXPECT_EQ(specs.front().layer, -1);
    EXPECT_EQ(specs.back().layer, -1);
    EXPECT_EQ(specs[12].layer, 1);
    EXPECT_EQ(specs[2].shape, (Shape{24, 8}));   // q_proj: heads * head_dim, hidden
    EXPECT_EQ(specs[3].shape, (Shape{12, 8}));   // k_proj: kv_heads * head_dim, hidden
    EXPECT_EQ(specs[7].shape, (Shape{8, 24}));   // o_proj
    EXPECT_EQ(specs[11].shape, (Shape{8, 24}));  // down_proj
}

TEST(Parameters, BiasesFollowTheirWeights) {
    ModelConfig config = small();
    config.num_hidden_layers = 1;
    config.qk_norm = false;
    config.qkv_bias = true;
    const std::string layer = "model.layers.0.";
    EXPECT_THAT(
        names(config),
        testing::ElementsAre("model.embed_tokens.weight", layer + "input_layernorm.weight",
                             layer + "self_attn.q_proj.weight", layer + "self_attn.q_proj.bias",
                             layer + "self_attn.k_proj.weight", layer + "self_attn.k_proj.bias",
                             layer + "self_attn.v_proj.weight", layer + "self_attn.v_proj.bias",
                             layer + "self_attn.o_proj.weight", layer + "post_attention_layernorm.weight",
                             layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
                             layer + "mlp.down_proj.weight", "model.norm.weight"));
    EXPECT_EQ(parameter_specs(config)[3].shape, (Shape{24}));
    EXPECT_EQ(parameter_specs(config)[7].shape, (Shape{12}));
    config.o_bias = config.mlp_bias = true;
    const auto all = parameter_specs(config);
    EXPECT_EQ(all.size(), 14u + 4u);
    EXPECT_EQ(all[9].name, layer + "self_attn.o_proj.bias");
    EXPECT_EQ(all[9].shape, (Shape{8}));
    EXPECT_EQ(all[12].name, layer + "mlp.gate_proj.bias");
    EXPECT_EQ(all[12].shape, (Shape{24}));
    EXPECT_EQ(all[16].name, layer + "mlp.down_proj.bias");
}

TEST(Parameters, WithoutQkNormAndTied) {
    ModelConfig config = small();
    config.qk_norm = false;
    for (const std::string& name : names(config)) {
        EXPECT_EQ(name.find("q_norm"), std::string::npos);
        EXPECT_NE(name, "lm_head.weight");
    }
    EXPECT_EQ(names(config).size(), 1u + 2u * 9u + 1u);
}

// "self_attn.k_proj.weight k column 2": below the first layer, or whole.
std::vector<std::string> rows(const DecoderSizes& sizes) {
    constexpr std::array kCuts{"replicate", "column", "row", "expert", "vocabulary"};
    constexpr std::array kInitials{"one", "zero", "normal", "residual"};
    std::vector<std::string> result;
    for (const ParameterSpec& spec : parameter_specs(sizes)) {
        const std::string prefix = spec.layer < 0 ? "" : fmt::format("model.layers.{}.", spec.layer);
        EXPECT_TRUE(spec.name.starts_with(prefix));
        result.push_back(fmt::format("{} {} {} {}", spec.name.substr(prefix.size()),
                                     kCuts[static_cast<std::size_t>(spec.cut)], spec.heads,
                                     kInitials[static_cast<std::size_t>(spec.initial())]));
    }
    return result;
}

TEST(Parameters, CutsHeadsAndBeginnings) {
    ModelConfig config = small();
    config.num_hidden_layers = 1;
    config.tie_word_embeddings = false;
    config.qkv_bias = config.o_bias = config.mlp_bias = true;
    EXPECT_THAT(rows(config),
                testing::ElementsAre(
                    "model.embed_tokens.weight vocabulary 0 normal", "input_layernorm.weight replicate 0 one",
                    "self_attn.q_proj.weight column 4 normal", "self_attn.q_proj.bias column 4 zero",
                    "self_attn.k_proj.weight column 2 normal", "self_attn.k_proj.bias column 2 zero",
                    "self_attn.v_proj.weight column 2 normal", "self_attn.v_proj.bias column 2 zero",
                    "self_attn.q_norm.weight replicate 0 one", "self_attn.k_norm.weight replicate 0 one",
                    "self_attn.o_proj.weight row 0 residual", "self_attn.o_proj.bias replicate 0 zero",
                    "post_attention_layernorm.weight replicate 0 one", "mlp.gate_proj.weight column 0 normal",
                    "mlp.gate_proj.bias column 0 zero", "mlp.up_proj.weight column 0 normal",
                    "mlp.up_proj.bias column 0 zero", "mlp.down_proj.weight row 0 residual",
                    "mlp.down_proj.bias replicate 0 zero", "model.norm.weight replicate 0 one",
                    "lm_head.weight vocabulary 0 normal"));
}

TEST(Parameters, ExpertsAndLatentAttention) {
    DecoderSizes sizes = small();
    sizes.num_hidden_layers = 1;
    sizes.num_experts = 2;
    sizes.moe_intermediate_size = 10;
    sizes.n_shared_experts = 1;
    sizes.q_lora_rank = 3;
    sizes.kv_lora_rank = 5;
    sizes.qk_rope_head_dim = sizes.qk_nope_head_dim = sizes.v_head_dim = 4;
    EXPECT_THAT(
        rows(sizes),
        testing::ElementsAre(
            "model.embed_tokens.weight vocabulary 0 normal", "input_layernorm.weight replicate 0 one",
            "self_attn.q_a_proj.weight replicate 0 normal", "self_attn.q_a_layernorm.weight replicate 0 one",
            "self_attn.q_b_proj.weight column 4 normal",
            "self_attn.kv_a_proj_with_mqa.weight replicate 0 normal",
            "self_attn.kv_a_layernorm.weight replicate 0 one", "self_attn.kv_b_proj.weight column 4 normal",
            "self_attn.o_proj.weight row 0 residual", "post_attention_layernorm.weight replicate 0 one",
            "mlp.gate.weight replicate 0 normal", "mlp.experts.0.gate_proj.weight expert 0 normal",
            "mlp.experts.0.up_proj.weight expert 0 normal",
            "mlp.experts.0.down_proj.weight expert 0 residual",
            "mlp.experts.1.gate_proj.weight expert 0 normal", "mlp.experts.1.up_proj.weight expert 0 normal",
            "mlp.experts.1.down_proj.weight expert 0 residual",
            "mlp.shared_experts.gate_proj.weight column 0 normal",
            "mlp.shared_experts.up_proj.weight column 0 normal",
            "mlp.shared_experts.down_proj.weight row 0 residual", "model.norm.weight replicate 0 one"));
}

// What a name alone says is what the table says.
TEST(Parameters, ANameTellsTheRole) {
    DecoderSizes experts = small();
    experts.tie_word_embeddings = false;
    experts.qkv_bias = experts.o_bias = true;
    experts.num_experts = 12;
    experts.moe_intermediate_size = 10;
    DecoderSizes latent = small();
    latent.q_lora_rank = latent.kv_lora_rank = 5;
    latent.qk_rope_head_dim = latent.qk_nope_head_dim = latent.v_head_dim = 4;
    for (const DecoderSizes& sizes : {experts, latent}) {
        for (const ParameterSpec& spec : parameter_specs(sizes)) {
            const ParameterSpec named = named_parameter(spec.name, spec.shape, spec.cut, spec.heads);
            EXPECT_EQ(named.role, spec.role) << spec.name;
            EXPECT_EQ(named.bias, spec.bias) << spec.name;
            EXPECT_EQ(named.layer, spec.layer) << spec.name;
            EXPECT_EQ(named.expert, spec.expert) << spec.name;
            EXPECT_EQ(named.initial(), spec.initial()) << spec.name;
        }
    }
    EXPECT_EQ(named_parameter("q_proj.weight", {}, Cut::column).role, Role::q);
    const std::pair<const char*, int> layers[] = {
        {"layers.3.up_proj.weight", 3},          {"model.language_model.layers.12.q_proj.weight_scale", 12},
        {"model.players.1.layers.2.weight", 2},  {"model.layers.4", -1},
        {"model.layers.-4.weight", -1},          {"model.layers.x.weight", -1},
        {"model.layers.99999999999.weight", -1}, {"lm_head.weight", -1}};
    for (const auto& [name, layer] : layers)
        EXPECT_EQ(named_parameter(name, {4, 4}, Cut::replicate).layer, layer) << name;
    for (const char* other :
         {"", "weight", ".weight", "transformer.h.0.attn.c_attn.weight", "a.q_proj.weight_scale_inv",
          "model.layers.0.mlp.experts.x.w1.weight", "model.layers.0.mlp.experts."}) {
        EXPECT_EQ(named_parameter(other, {4, 4}, Cut::replicate).role, Role::other) << other;
        EXPECT_EQ(named_parameter(other, {4, 4}, Cut::replicate).expert, -1) << other;
    }
}

}  // namespace
}  // namespace tandem::model
