// Rope scaling: keys of both generations of transformers, and what is refused.
#include "common/model/rope.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/model/model_config.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using Type = RopeScaling::Type;

json llama() {
    return json::parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32, "max_position_embeddings": 4096})");
}

json with(const std::string& key, const json& value) {
    json text = llama();
    text[key] = value;
    return text;
}

const json kLlama3 = {{"rope_type", "llama3"},  {"factor", 32.0},
                      {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                      {"rope_theta", 500000.0}, {"original_max_position_embeddings", 8192}};
const json kYarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};

ModelConfig parsed(const json& text) {
    return parse_model_config(text.dump(), "f");
}

TEST(Rope, ReadsBothGenerationsOfKeys) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const ModelConfig llama3 = parsed(with(key, kLlama3));
        EXPECT_EQ(llama3.rope_theta, 500000.0) << "inside counts before outside";
        EXPECT_EQ(llama3.rope_scaling.type, Type::llama3);
        EXPECT_EQ(llama3.rope_scaling.factor, 32.0);
        EXPECT_EQ(llama3.rope_scaling.original_max_position_embeddings, 8192);
        json text = with(key, kYarn);
        text["rope_theta"] = 1000000;
        const ModelConfig yarn = parsed(text);
        EXPECT_EQ(yarn.rope_theta, 1e6);
        EXPECT_EQ(yarn.rope_scaling.type, Type::yarn);
        EXPECT_EQ(yarn.rope_scaling.beta_fast, 32.0);
    }
    json both = with("rope_scaling", {{"type", "linear"}, {"factor", 2}});
    both["rope_parameters"] = kLlama3;
    EXPECT_EQ(parsed(both).rope_scaling.type, Type::linear) << "rope_scaling counts where both are given";
    both["rope_scaling"] = nullptr;
    EXPECT_EQ(parsed(both).rope_scaling.type, Type::llama3);
    EXPECT_EQ(parsed(llama()).rope_theta, 10000.0);
}

TEST(Rope, DefaultsOfTheOriginalContext) {
    json yarn = kYarn;
    yarn.erase("original_max_position_embeddings");
    EXPECT_EQ(parsed(with("rope_scaling", yarn)).rope_scaling.original_max_position_embeddings, 4096);
    json text = with("rope_scaling", kYarn);
    text["original_max_position_embeddings"] = 512;
    EXPECT_EQ(parsed(text).rope_scaling.original_max_position_embeddings, 512);
    yarn = kYarn;
    yarn["factor"] = nullptr;  // the ratio of the contexts
    EXPECT_EQ(parsed(with("rope_scaling", yarn)).rope_scaling.factor, 4.0);
}

TEST(Rope, WhatWeWriteReadsBack) {
    json yarn = kYarn;
    yarn.update({{"mscale", 0.7}, {"mscale_all_dim", 1.1}, {"beta_fast", 16}, {"truncate", false}});
    json factor = kYarn;
    factor["attention_factor"] = 1.25;
    for (const json& rope : {kLlama3, yarn, factor, json{{"type", "linear"}, {"factor", 2.5}}}) {
        const ModelConfig config = parsed(with("rope_scaling", rope));
        const ModelConfig again = parse_model_config(to_json(config), "f");
        EXPECT_EQ(again.rope_scaling, config.rope_scaling) << to_json(config);
        EXPECT_EQ(again.rope_theta, config.rope_theta);
    }
}

TEST(Rope, FrequenciesAreTransformers) {  // tests/golden/make_families.py
    std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/rope.json");
    const json cases = json::parse(in);
    EXPECT_GE(cases.size(), 13u);
    for (const json& one : cases) {
        json text = llama();
        for (const char* key : {"head_dim", "max_position_embeddings", "rope_parameters"})
            text[key] = one[key];
        for (const bool old_keys : {false, true}) {
            if (old_keys) {
                json rope = one["rope_parameters"];
                text.erase("rope_parameters");
                text["rope_theta"] = rope["rope_theta"];
                rope.erase("rope_theta");
                text["rope_scaling"] = rope;
            }
            const RopeFrequencies got = parsed(text).rope_frequencies();
            const auto wanted = one["inverse"].get<std::vector<double>>();
            ASSERT_EQ(got.inverse.size(), wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i) {  // transformers computes in fp32, with powers
                EXPECT_NEAR(static_cast<double>(got.inverse[i]), wanted[i], 3e-6 * wanted[i])
                    << text.dump() << " " << i;
            }
            EXPECT_NEAR(static_cast<double>(got.attention_factor), one["attention_factor"].get<double>(),
                        1e-6);
        }
    }
}

void expect_rope_refused(const json& text, const std::string& key, const std::string& part) {
    try {
        parsed(text);
        FAIL() << "accepted: " << text.dump();
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.key(), key);
        EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
}

TEST(Rope, RefusesWhatItDoesNotCompute) {
    for (const char* type : {"dynamic", "longrope", "su", "proportional"}) {
        expect_rope_refused(with("rope_scaling", {{"rope_type", type}, {"factor", 2.0}}),
                            "rope_scaling.rope_type", type);
        expect_rope_refused(with("rope_parameters", {{"type", type}, {"factor", 2.0}}),
                            "rope_parameters.type", type);
    }
    expect_rope_refused(with("rope_scaling", 3), "rope_scaling", "object");
    expect_rope_refused(with("rope_scaling", {{"type", 3}}), "rope_scaling.type", "string");
    expect_rope_refused(with("rope_parameters", {{"full_attention", kLlama3}}),
                        "rope_parameters.full_attention", "layer type");
    expect_rope_refused(with("partial_rotary_factor", 0.5), "partial_rotary_factor", "part of a head");
    expect_rope_refused(with("rope_scaling", {{"type", "default"}, {"partial_rotary_factor", 0.25}}),
                        "rope_scaling.partial_rotary_factor", "part of a head");
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
        json rope = kLlama3;
        rope.erase(key);
        expect_rope_refused(with("rope_scaling", rope), std::string("rope_scaling.") + key, "missing");
    }
    expect_rope_refused(with("rope_scaling", {{"type", "yarn"}}), "rope_scaling.factor", "missing");
    json rope = kLlama3;
    rope["high_freq_factor"] = 1.0;
    expect_rope_refused(with("rope_scaling", rope), "rope_scaling.high_freq_factor", "greater");
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, double>>{{"factor", 0},
                                                     {"original_max_position_embeddings", -1},
                                                     {"beta_fast", -1},
                                                     {"attention_factor", 0}}) {
        rope = kYarn;
        rope[key] = key == std::string("original_max_position_embeddings") ? json(-1) : json(value);
        expect_rope_refused(with("rope_scaling", rope), std::string("rope_scaling.") + key, "positive");
    }
    json text = with("rope_scaling", kYarn);
    text["rope_theta"] = 1;
    expect_rope_refused(text, "rope_theta", "greater than 1");
}

}  // namespace
}  // namespace tandem::model
