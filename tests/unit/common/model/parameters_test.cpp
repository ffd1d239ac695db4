// Names, shapes and order of the parameters.
#include "common/model/parameters.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace tandem::model
