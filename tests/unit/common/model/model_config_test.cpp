// config.json: what transformers writes is read, what we write reads back, and everything that would change
// the forward pass without being computed is refused with file and key.
#include "common/model/model_config.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::model {
namespace {

using nlohmann::json;

json qwen3() {
    return json::parse(
        R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
        "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
        "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

void expect_refused(const json& config, const std::string& key, const std::string& part) {
    try {
        parse_model_config(config.dump(), "DIR/config.json");
        FAIL() << "accepted: " << config.dump();
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.file(), "DIR/config.json");
        EXPECT_EQ(error.key(), key);
        EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
}

TEST(ModelConfig, ReadsQwen3) {
    const ModelConfig config = parse_model_config(qwen3().dump(), "f");
    EXPECT_TRUE(config.qk_norm);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_EQ(config.rope_theta, 1e6);
    EXPECT_EQ(config.torch_dtype, DType::bfloat16);
    EXPECT_EQ(config.eos_token_id, 151645);
    EXPECT_EQ(config.parameter_count(), 596049920);  // Qwen3-0.6B, embeddings tied
}

TEST(ModelConfig, ReadsLlamaWithoutQkNormAndWithDefaults) {
    json text = qwen3();
    text["architectures"] = {"LlamaForCausalLM"};
    for (const char* key : {"head_dim", "num_key_value_heads", "tie_word_embeddings", "rope_theta"})
        text.erase(key);
    text["rope_parameters"] = {{"rope_theta", 5000.0}, {"rope_type", "default"}};
    text["eos_token_id"] = {2, 7};
    text.erase("torch_dtype");
    text["dtype"] = "float32";
    const ModelConfig config = parse_model_config(text.dump(), "f");
    EXPECT_FALSE(config.qk_norm);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.num_key_value_heads, 16);
    EXPECT_FALSE(config.tie_word_embeddings);
    EXPECT_EQ(config.rope_theta, 5000.0);
    EXPECT_EQ(config.torch_dtype, DType::float32);
    EXPECT_EQ(config.eos_token_id, 2);
    EXPECT_EQ(config.more_eos_token_ids, std::vector<std::int32_t>{7});
}

TEST(ModelConfig, WhatWeWriteReadsBack) {
    for (const bool qk_norm : {true, false}) {
        ModelConfig config = parse_model_config(qwen3().dump(), "f");
        config.qk_norm = qk_norm;
        config.rope_theta = 1e9;
        config.rms_norm_eps = 1e-6f;
        const std::string text = to_json(config);
        const ModelConfig again = parse_model_config(text, "f");
        EXPECT_EQ(again.qk_norm, qk_norm);
        EXPECT_EQ(again.rope_theta, config.rope_theta);
        EXPECT_EQ(again.rms_norm_eps, config.rms_norm_eps);
        EXPECT_EQ(again.eos_token_id, config.eos_token_id);
        EXPECT_EQ(again.parameter_count(), config.parameter_count());
        EXPECT_EQ(to_json(again), text);
        EXPECT_EQ(json::parse(text)["rms_norm_eps"].dump(), "1e-06");
    }
}

TEST(ModelConfig, BiasesAreWhatTheFamilySays) {
    const auto biases = [](const char* architecture, bool attention, bool mlp) {
        json text = qwen3();
        text["architectures"] = {architecture};
        text["attention_bias"] = attention;
        text["mlp_bias"] = mlp;
        const ModelConfig config = parse_model_config(text.dump(), "f");
        EXPECT_EQ(config.architecture(), architecture);
        const ModelConfig again = parse_model_config(to_json(config), "f");
        EXPECT_EQ(again.architecture(), architecture);
        EXPECT_EQ(again.parameter_count(), config.parameter_count());
        return std::vector<bool>{config.qkv_bias, config.o_bias, config.mlp_bias};
    };
    using Flags = std::vector<bool>;
    EXPECT_EQ(biases("Qwen3ForCausalLM", false, true), (Flags{false, false, false}));
    EXPECT_EQ(biases("Qwen3ForCausalLM", true, false), (Flags{true, true, false}));
    EXPECT_EQ(biases("Qwen2ForCausalLM", false, false), (Flags{true, false, false}));
    EXPECT_EQ(biases("Qwen2ForCausalLM", true, true), (Flags{true, false, false}));
    EXPECT_EQ(biases("LlamaForCausalLM", false, false), (Flags{false, false, false}));
    EXPECT_EQ(biases("LlamaForCausalLM", true, false), (Flags{true, true, false}));
    EXPECT_EQ(biases("LlamaForCausalLM", false, true), (Flags{false, false, true}));
    EXPECT_EQ(biases("LlamaForCausalLM", true, true), (Flags{true, true, true}));
}

TEST(ModelConfig, NoFamilyHasSuchBiases) {
    for (const auto& change : std::vector<void (*)(ModelConfig&)>{
             [](ModelConfig& c) { c.mlp_bias = true; }, [](ModelConfig& c) { c.qkv_bias = true; },
             [](ModelConfig& c) { c.qk_norm = false, c.o_bias = true; },
             [](ModelConfig& c) { c.qk_norm = false, c.qkv_bias = true, c.mlp_bias = true; }}) {
        ModelConfig config = parse_model_config(qwen3().dump(), "f");
        change(config);
        EXPECT_THROW(config.validate("f"), ConfigError);
    }
}

TEST(ModelConfig, HeadDimThatIsNotSaid) {
    json text = qwen3();
    text.erase("head_dim");
    EXPECT_EQ(parse_model_config(text.dump(), "f").head_dim, 128);  // Qwen3Config's default
    text["head_dim"] = nullptr;
    EXPECT_EQ(parse_model_config(text.dump(), "f").head_dim, 64);
    for (const char* architecture : {"Qwen2ForCausalLM", "LlamaForCausalLM"}) {
        text["architectures"] = {architecture};
        text.erase("head_dim");
        EXPECT_EQ(parse_model_config(text.dump(), "f").head_dim, 64);
        text["head_dim"] = 128;
        EXPECT_EQ(parse_model_config(text.dump(), "f").head_dim, 128);
    }
    text["hidden_size"] = 1000;
    text.erase("head_dim");
    expect_refused(text, "head_dim", "does not divide by 16 heads");
}

TEST(ModelConfig, RefusesWhatItDoesNotCompute) {
    const auto with = [](const std::string& key, const json& value) {
        json text = qwen3();
        text[key] = value;
        return text;
    };
    expect_refused(with("architectures", {"MixtralForCausalLM"}), "architectures", "Qwen3ForCausalLM");
    expect_refused(with("architectures", 3), "architectures", "list");
    expect_refused(with("attention_bias", 1), "attention_bias", "true or false");
    expect_refused(with("quantization_config", json::object()), "quantization_config", "quantised");
    expect_refused(with("hidden_act", "gelu"), "hidden_act", "gelu");
    expect_refused(with("use_sliding_window", true), "use_sliding_window", "not supported");
    expect_refused(with("layer_types", {"full_attention", "sliding_attention"}), "layer_types", "sliding");
    expect_refused(with("torch_dtype", "float64"), "torch_dtype", "supported: float32, bfloat16, float16");
    expect_refused(with("dtype", "auto"), "dtype", "\"auto\" is not supported");
    expect_refused(with("dtype", 16), "dtype", "string");
    expect_refused(with("hidden_size", 0), "hidden_size", "positive");
    expect_refused(with("hidden_size", "big"), "hidden_size", "integer");
    expect_refused(with("num_attention_heads", 0), "num_attention_heads", "positive");
    expect_refused(with("num_key_value_heads", 5), "num_attention_heads", "multiple");
    expect_refused(with("head_dim", 65), "head_dim", "even");
    expect_refused(with("rms_norm_eps", 0), "rms_norm_eps", "positive");
    expect_refused(with("rope_theta", -1), "rope_theta", "positive");
    expect_refused(with("eos_token_id", 151936), "eos_token_id", "vocabulary");
    expect_refused(with("vocab_size", nullptr), "vocab_size", "missing");
    expect_refused(json::array(), "", "object");
}

TEST(ModelConfig, DtypeIsReadInTransformersFivesOrder) {
    json text = qwen3();
    const auto read = [&] { return parse_model_config(text.dump(), "f").torch_dtype; };
    for (const char* key : {"dtype", "torch_dtype"}) {
        text.erase("dtype");
        text.erase("torch_dtype");
        for (const auto& [dtype, words] :
             {std::pair(DType::float16, std::vector{"float16", "torch.float16", "half", "fp16"}),
              std::pair(DType::bfloat16, std::vector{"bfloat16", "torch.bfloat16", "bf16"}),
              std::pair(DType::float32, std::vector{"float32", "torch.float32", "float"})}) {
            for (const char* word : words) {
                text[key] = word;
                EXPECT_EQ(read(), dtype) << word;
            }
        }
    }
    text["dtype"] = "float32";
    text["torch_dtype"] = "bfloat16";
    EXPECT_EQ(read(), DType::float32);
    text["dtype"] = nullptr;
    EXPECT_EQ(read(), DType::bfloat16);
}

TEST(ModelConfig, NamesTheFileThatIsMissingOrMalformed) {
    const TemporaryDirectory directory;
    const auto message = [&](const std::string& path) -> std::string {
        try {
            read_model_config(path);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_THAT(message(directory.file("nowhere")), testing::HasSubstr("nowhere: is not a directory"));
    EXPECT_THAT(message(directory.path()), testing::HasSubstr("config.json: cannot be opened"));
    directory.write("config.json", "{\"a\": ");
    EXPECT_THAT(message(directory.path()), testing::HasSubstr("config.json: malformed JSON"));
}

}  // namespace
}  // namespace tandem::model
