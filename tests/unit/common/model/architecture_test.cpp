// Which config.json mean the same model, and which key a difference is told by: a line a pair, as transformers reads them.
#include "common/model/architecture.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/support/error_of.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const json kDropped = "DROPPED";

struct Pair {
    std::string what;
    json ours, theirs;              // keys over keys_of_family()'s; kDropped removes one
    std::vector<std::string> keys;  // that differ; none: they are equal
};

json keys_of_family(const std::string& family) {
    const std::string name = family == "llama" ? "Llama" : family == "qwen2" ? "Qwen2" : "Qwen3";
    return {{"architectures", {name + "ForCausalLM"}},
            {"model_type", family},
            {"hidden_size", 64},
            {"intermediate_size", 96},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"head_dim", 16},
            {"vocab_size", 32},
            {"max_position_embeddings", 4096},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", true},
            {"torch_dtype", "float32"}};
}

Architecture read_with(const std::string& family, const json& keys) {
    json config = keys_of_family(family);
    for (const auto& [key, value] : keys.items())
        value == kDropped ? (void)config.erase(key) : (void)(config[key] = value);
    return Architecture::from_json(config, "config.json");
}

std::vector<std::string> keys_of(const std::vector<Difference>& differences) {
    std::vector<std::string> keys;
    for (const Difference& one : differences) keys.push_back(one.key);
    return keys;
}

const json kLlama3Keys = {{"rope_type", "llama3"},  {"factor", 32.0},
                          {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                          {"rope_theta", 500000.0}, {"original_max_position_embeddings", 1024}};
const json kYarnKeys = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};

json changed(json from, const json& keys) {
    from.update(keys);
    return from;
}

json without(json from, const std::string& key) {
    from.erase(key);
    return from;
}

// Of every family.
const std::vector<Pair> kPairs{
    {"the same", {}, {}, {}},
    // What is not compared.
    {"dtype", {}, {{"torch_dtype", "bfloat16"}}, {}},
    {"a dtype that we do not know", {}, {{"torch_dtype", kDropped}, {"dtype", "float8_e4m3fn"}}, {}},
    {"stop tokens", {{"eos_token_id", 2}}, {{"eos_token_id", {2, 7}}}, {}},
    {"context", {}, {{"max_position_embeddings", 8192}}, {}},
    {"keys without meaning here", {}, {{"transformers_version", "5.24.0"}, {"use_cache", false}}, {}},
    // Sizes.
    {"vocabulary", {}, {{"vocab_size", 40}}, {"vocab_size"}},
    {"layers", {}, {{"num_hidden_layers", 3}}, {"num_hidden_layers"}},
    {"heads of one product",
     {},
     {{"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 32}},
     {"head_dim", "num_attention_heads", "num_key_value_heads"}},
    {"key-value heads", {}, {{"num_key_value_heads", 4}}, {"num_key_value_heads"}},
    {"key-value heads: null is as many as heads",
     {{"num_key_value_heads", nullptr}},
     {{"num_key_value_heads", 4}},
     {}},
    {"tying", {}, {{"tie_word_embeddings", false}}, {"tie_word_embeddings"}},
    {"tying: unsaid is no", {{"tie_word_embeddings", kDropped}}, {{"tie_word_embeddings", false}}, {}},
    {"activation: unsaid is silu", {{"hidden_act", kDropped}}, {{"hidden_act", "silu"}}, {}},
    {"activation: swish is silu", {{"hidden_act", "swish"}}, {{"hidden_act", "silu"}}, {}},
    {"eps", {}, {{"rms_norm_eps", 1e-5}}, {"rms_norm_eps"}},
    {"eps: unsaid", {{"rms_norm_eps", kDropped}}, {}, {}},
    {"eps: another spelling", {{"rms_norm_eps", 0.000001}}, {}, {}},
    {"model_type alone", {{"architectures", kDropped}}, {}, {}},
    {"model_type alone, architectures null", {{"architectures", nullptr}}, {}, {}},
    // Rotary frequencies.
    {"theta", {}, {{"rope_theta", 1000000.0}}, {"rope_theta"}},
    {"theta: unsaid", {{"rope_theta", kDropped}}, {}, {}},
    {"theta: an integer", {{"rope_theta", 10000}}, {}, {}},
    {"scaling: null", {{"rope_scaling", nullptr}}, {}, {}},
    {"scaling: empty", {{"rope_scaling", json::object()}}, {}, {}},
    {"scaling: default", {{"rope_scaling", {{"rope_type", "default"}}}}, {}, {}},
    {"new keys",
     {{"rope_theta", kDropped}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}},
     {{"rope_theta", 1e6}},
     {}},
    {"new keys: inside counts",
     {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}},
     {},
     {"rope_theta"}},
    {"new keys without theta",
     {{"rope_theta", 1e6}, {"rope_parameters", {{"rope_type", "default"}}}},
     {{"rope_theta", 1e6}},
     {}},
    {"new keys: null", {{"rope_parameters", nullptr}}, {}, {}},
    {"old and new: the old one counts",
     {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
      {"rope_parameters", {{"rope_type", "linear"}, {"factor", 8}}}},
     {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}}},
     {}},
    {"linear",
     {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
     {},
     {"rope_scaling.rope_type"}},
    {"linear: type and rope_type",
     {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
     {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 10000.0}}}},
     {}},
    {"linear: factor",
     {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
     {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}},
     {"rope_scaling.factor"}},
    {"linear: a factor of 1 changes nothing",
     {{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}},
     {},
     {}},
    {"llama3: old and new",
     {{"rope_theta", 500000.0}, {"rope_scaling", without(kLlama3Keys, "rope_theta")}},
     {{"rope_theta", kDropped}, {"rope_parameters", kLlama3Keys}},
     {}},
    {"llama3: factor",
     {{"rope_scaling", kLlama3Keys}},
     {{"rope_scaling", changed(kLlama3Keys, {{"factor", 8}})}},
     {"rope_scaling.factor"}},
    {"llama3: high_freq_factor",
     {{"rope_scaling", kLlama3Keys}},
     {{"rope_scaling", changed(kLlama3Keys, {{"high_freq_factor", 2}})}},
     {"rope_scaling.high_freq_factor"}},
    {"llama3: a factor of 1 changes nothing",
     {{"rope_scaling", changed(kLlama3Keys, {{"factor", 1}})}},
     {{"rope_theta", 500000.0}},
     {}},
    {"llama3 and linear",
     {{"rope_scaling", without(kLlama3Keys, "rope_theta")}},
     {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
     {"rope_scaling.rope_type", "rope_scaling.factor"}},
    {"yarn: old and new",
     {{"rope_scaling", changed(kYarnKeys, {{"type", "yarn"}, {"rope_type", nullptr}})}},
     {{"rope_theta", kDropped}, {"rope_parameters", changed(kYarnKeys, {{"rope_theta", 10000}})}},
     {}},
    {"yarn: its defaults",
     {{"rope_scaling", kYarnKeys}},
     {{"rope_scaling", changed(kYarnKeys, {{"beta_fast", 32}, {"beta_slow", 1.0}, {"truncate", true}})}},
     {}},
    {"yarn: beta_fast",
     {{"rope_scaling", kYarnKeys}},
     {{"rope_scaling", changed(kYarnKeys, {{"beta_fast", 8}})}},
     {"rope_scaling.beta_fast"}},
    {"yarn: a factor that follows",
     {{"rope_scaling", changed(kYarnKeys, {{"factor", nullptr}})}},
     {{"rope_scaling", kYarnKeys}},
     {}},
    {"yarn: the context is the original one's",
     {{"rope_scaling", without(kYarnKeys, "original_max_position_embeddings")}},
     {{"rope_scaling", changed(kYarnKeys, {{"original_max_position_embeddings", 4096}})}},
     {}},
    {"yarn: another context that changes it",
     {{"rope_scaling", without(kYarnKeys, "original_max_position_embeddings")}},
     {{"rope_scaling", without(kYarnKeys, "original_max_position_embeddings")},
      {"max_position_embeddings", 32768}},
     {"rope_scaling.original_max_position_embeddings"}},
    {"yarn: another context that does not",
     {{"rope_scaling", kYarnKeys}},
     {{"rope_scaling", kYarnKeys}, {"max_position_embeddings", 8192}},
     {}},
    {"yarn: attention_factor",
     {{"rope_scaling", kYarnKeys}},
     {{"rope_scaling", changed(kYarnKeys, {{"attention_factor", 1.0}})}},
     {"rope_scaling.attention_factor"}},
    {"yarn: the attention factor that follows, said",
     {{"rope_scaling", kYarnKeys}},
     {{"rope_scaling", changed(kYarnKeys, {{"attention_factor", 1.1386294361119891}})}},
     {}},
    {"yarn: mscales that cancel",
     {{"rope_scaling", changed(kYarnKeys, {{"mscale", 1}, {"mscale_all_dim", 1}})}},
     {{"rope_scaling", changed(kYarnKeys, {{"attention_factor", 1}})}},
     {}},
};

class Architectures : public testing::TestWithParam<std::string> {};

TEST_P(Architectures, AreEqualWhereTheyComputeTheSame) {
    for (const Pair& pair : kPairs) {
        SCOPED_TRACE(pair.what);
        const Architecture ours = read_with(GetParam(), pair.ours),
                           theirs = read_with(GetParam(), pair.theirs);
        EXPECT_EQ(keys_of(ours.differences(theirs)), pair.keys);
        EXPECT_EQ(theirs.differences(ours).empty(), pair.keys.empty());
        EXPECT_EQ(ours == theirs, pair.keys.empty());
    }
}

TEST_P(Architectures, TravelAsKeysOfConfigJson) {
    for (const Pair& pair : kPairs) {
        const Architecture one = read_with(GetParam(), pair.theirs);
        const Architecture again = Architecture::from_json(one.as_json(), "there");
        EXPECT_EQ(again.as_json(), one.as_json()) << pair.what;
        EXPECT_EQ(again, one) << pair.what;
    }
    for (const char* key : {"torch_dtype", "eos_token_id", "max_position_embeddings"})
        EXPECT_FALSE(read_with(GetParam(), json::object()).as_json().contains(key)) << key;
}

TEST_P(Architectures, WhatWeDoNotComputeIsRefusedByItsKey) {
    const auto refused = [&](const json& keys) {
        return test::error_of([&] { read_with(GetParam(), keys); });
    };
    EXPECT_THAT(refused({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}),
                AllOf(HasSubstr("config.json: rope_scaling.type"), HasSubstr("\"dynamic\"")));
    EXPECT_THAT(refused({{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2}}}}),
                AllOf(HasSubstr("config.json: rope_parameters.rope_type"), HasSubstr("\"dynamic\"")));
    EXPECT_THAT(refused({{"hidden_act", "gelu"}}), AllOf(HasSubstr("hidden_act"), HasSubstr("\"gelu\"")));
    EXPECT_THAT(refused({{"architectures", kDropped}, {"model_type", "gpt2"}}),
                HasSubstr("architectures: missing"));
}

INSTANTIATE_TEST_SUITE_P(Families, Architectures, testing::Values("qwen3", "qwen2", "llama"),
                         [](const auto& info) { return info.param; });

TEST(Architecture, BiasesAreComparedWhereTheFamilyHasThem) {
    const json with = {{"attention_bias", true}}, no = {{"attention_bias", false}};
    EXPECT_THAT(keys_of(read_with("llama", with).differences(read_with("llama", no))),
                ElementsAre("attention_bias"));
    EXPECT_THAT(keys_of(read_with("qwen3", with).differences(read_with("qwen3", {}))),
                ElementsAre("attention_bias"));
    EXPECT_THAT(read_with("qwen2", with).differences(read_with("qwen2", no)), IsEmpty())
        << "it does not read that key";
    EXPECT_THAT(keys_of(read_with("llama", {{"mlp_bias", true}}).differences(read_with("llama", {}))),
                ElementsAre("mlp_bias"));
    EXPECT_THAT(read_with("qwen3", {{"mlp_bias", true}}).differences(read_with("qwen3", {})), IsEmpty());
}

TEST(Architecture, FamiliesDiffer) {
    EXPECT_THAT(keys_of(read_with("llama", {}).differences(read_with("qwen2", {}))),
                ElementsAre("architectures"));
    EXPECT_THAT(keys_of(read_with("qwen3", {}).differences(read_with("llama", {}))),
                ElementsAre("architectures"));
}

// transformers' own, which are not one rule: 128 in Qwen3Config, 32 in both Qwens.
TEST(Architecture, SilenceMeansEachFamilysDefault) {
    const json heads = {{"num_attention_heads", 64}, {"num_key_value_heads", kDropped}};
    const auto as = [&](std::int64_t kv) {
        return json{{"num_attention_heads", 64}, {"num_key_value_heads", kv}};
    };
    EXPECT_EQ(read_with("qwen3", heads), read_with("qwen3", as(32)));
    EXPECT_EQ(read_with("qwen2", heads), read_with("qwen2", as(32)));
    EXPECT_EQ(read_with("llama", heads), read_with("llama", as(64)));
    const json width = {{"head_dim", kDropped}};
    EXPECT_EQ(read_with("qwen3", width), read_with("qwen3", {{"head_dim", 128}}));
    EXPECT_EQ(read_with("qwen2", width), read_with("qwen2", {{"head_dim", 16}}));
    EXPECT_EQ(read_with("llama", width), read_with("llama", {{"head_dim", 16}}));
}

TEST(Architecture, ADifferenceIsToldWithBothValues) {
    const auto differences =
        read_with("qwen3", {{"rope_theta", 1e6}}).differences(read_with("qwen3", {{"rms_norm_eps", 1e-5}}));
    EXPECT_EQ(to_text(differences, "A", "B"),
              "rms_norm_eps is 1e-06 in A and 1e-05 in B; rope_theta: 1000000.0 and 10000.0");
}

}  // namespace
}  // namespace tandem::model
