// A directory's tensors against an architecture: what is missing, wrong, or too much, and what is let pass.
#include "common/model/check_weights.h"

#include <gmock/gmock.h>

#include <functional>

#include "common/error.h"
#include "common/model/parameters.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckWeights : public testing::Test {
  protected:
    CheckWeights() {
        config.vocab_size = 6;
        config.hidden_size = 4;
        config.intermediate_size = 4;
        config.num_hidden_layers = 1;
        config.num_attention_heads = config.num_key_value_heads = 1;
        config.head_dim = 4;
        config.max_position_embeddings = 8;
        fill();
    }
    void fill() {
        tensors.clear();
        for (const auto& spec : parameter_specs(config)) {
            tensors[spec.name] = Tensor::zeros(spec.shape, DType::float32, "test");
        }
    }
    std::vector<std::string> check() {
        write_safetensors(directory.file("model.safetensors"), {tensors.begin(), tensors.end()});
        return check_weights(Safetensors::open(directory.path()), config);
    }
    std::string refusal() {
        try {
            check();
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    }

    TemporaryDirectory directory;
    ModelConfig config;
    std::map<std::string, Tensor> tensors;
};

TEST_F(CheckWeights, AnyFloatDtypeWillDo) {
    EXPECT_TRUE(check().empty());
    tensors["model.norm.weight"] = Tensor::zeros({4}, DType::bfloat16, "test");
    tensors["model.layers.0.mlp.up_proj.weight"] = Tensor::zeros({4, 4}, DType::float16, "test");
    EXPECT_TRUE(check().empty());
    tensors["model.norm.weight"] = Tensor::zeros({4}, DType::int64, "test");
    EXPECT_THAT(refusal(), HasSubstr("model.safetensors: model.norm.weight: is int64; float32, bfloat16 or"));
}

TEST_F(CheckWeights, MissingAndMisshapen) {
    tensors.erase("model.norm.weight");
    EXPECT_THAT(refusal(), HasSubstr("model.norm.weight: missing from the safetensors files"));
    tensors["model.norm.weight"] = Tensor::zeros({5}, DType::float32, "test");
    EXPECT_THAT(refusal(),
                HasSubstr("model.safetensors: model.norm.weight: has shape [5], config.json implies [4]"));
}

TEST_F(CheckWeights, UnknownTensorsAreNamed) {
    tensors["model.layers.1.mlp.up_proj.weight"] = Tensor::zeros({4, 4}, DType::float32, "test");
    tensors["score.weight"] = Tensor::zeros({1, 4}, DType::float32, "test");
    EXPECT_THAT(refusal(),
                HasSubstr("model.layers.1.mlp.up_proj.weight, score.weight: not a parameter of Qwen3"));
    for (int i = 0; i < 20; ++i)
        tensors["a" + std::to_string(i)] = Tensor::zeros({1}, DType::float32, "test");
    EXPECT_THAT(refusal(), HasSubstr(" and 14 more: not a parameter"));
}

TEST_F(CheckWeights, RotaryBuffersAndARepeatedTiedHeadSayNothingNew) {
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Tensor::zeros({2}, DType::float32, "test");
    tensors["lm_head.weight"] = Tensor::zeros({6, 4}, DType::float32, "test");
    EXPECT_THAT(check(), ElementsAre("lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"));
    tensors["lm_head.weight"].data<float>()[23] = 1;
    EXPECT_THAT(refusal(), HasSubstr("lm_head.weight: differs from model.embed_tokens.weight"));
    tensors["lm_head.weight"] = Tensor::zeros({6, 4}, DType::bfloat16, "test");
    EXPECT_THAT(refusal(), HasSubstr("lm_head.weight: differs from model.embed_tokens.weight"));
}

TEST_F(CheckWeights, NamesOfAWrapperAreSaidToBeThat) {
    const auto renamed = [&](const std::function<std::string(const std::string&)>& rename) {
        fill();
        std::map<std::string, Tensor> old = std::move(tensors);
        tensors.clear();
        for (auto& [name, tensor] : old) tensors[rename(name)] = tensor;
        return refusal();
    };
    for (const auto& [mark, whose] :
         {std::pair("_orig_mod.", "torch.compile"), std::pair("base_model.model.", "PEFT"),
          std::pair("module.", "DistributedDataParallel"), std::pair("module._orig_mod.", "torch.compile"),
          std::pair("actor.", "strip it")}) {
        EXPECT_THAT(renamed([&](const std::string& name) { return mark + name; }),
                    testing::AllOf(HasSubstr("model.embed_tokens.weight: missing"), HasSubstr(whose),
                                   HasSubstr("strip")))
            << mark;
    }
    EXPECT_THAT(
        renamed([](const std::string& name) { return name.starts_with("model.") ? name.substr(6) : name; }),
        HasSubstr("names lack \"model.\""));
    // One layer alone.
    EXPECT_THAT(renamed([](std::string name) {
                    if (const auto at = name.find("layers.0."); at != std::string::npos)
                        name.insert(at + 9, "_checkpoint_wrapped_module.");
                    return name;
                }),
                HasSubstr("activation checkpointing"));
    fill();
    tensors.erase("model.norm.weight");
    EXPECT_THAT(refusal(), testing::Not(HasSubstr("strip")));
}

TEST_F(CheckWeights, AnUntiedModelNeedsItsHead) {
    config.tie_word_embeddings = false;
    EXPECT_THAT(refusal(),
                HasSubstr("lm_head.weight: missing, and config.json does not say that it is tied"));
    fill();
    EXPECT_TRUE(check().empty());
}

}  // namespace
}  // namespace tandem::model
