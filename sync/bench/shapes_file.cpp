// Shapes from a JSON file: config.json's keys, or a list of tensors.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/families.h"
#include "sync/bench/shapes.h"

namespace tandem::sync {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargest = std::int64_t{1} << 40;  // of any size in a file

class Reader {
  public:
    Reader(const json& object, const std::string& file) : object_(object), file_(file) {}

    bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
    std::int64_t positive(const char* key) const {
        const std::int64_t value = size(key);
        if (value < 1) fail(key, "must be positive");
        return value;
    }
    std::int64_t positive(const char* key, std::int64_t fallback) const {
        return has(key) ? positive(key) : fallback;
    }
    std::int64_t count(const char* key) const { return has(key) ? size(key) : 0; }
    bool flag(const char* key, bool fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_boolean()) fail(key, "must be true or false");
        return object_[key].get<bool>();
    }
    std::string word(const char* key, const std::string& fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_string()) fail(key, "must be a string");
        return object_[key].get<std::string>();
    }
    [[noreturn]] void fail(const char* key, const std::string& message) const {
        throw ConfigError(file_, key, message);
    }

  private:
    std::int64_t size(const char* key) const {
        if (!has(key)) fail(key, "missing");
        const json& value = object_[key];
        if (!value.is_number_integer() || value < 0 || value > kLargest) fail(key, "must be a size");
        return value.get<std::int64_t>();
    }
    const json& object_;
    const std::string& file_;
};

model::DecoderSizes read_sizes(const Reader& in) {
    model::DecoderSizes sizes;
    sizes.vocab_size = in.positive("vocab_size");
    sizes.hidden_size = in.positive("hidden_size");
    sizes.num_hidden_layers = in.positive("num_hidden_layers");
    sizes.num_attention_heads = in.positive("num_attention_heads");
    sizes.tie_word_embeddings = in.flag("tie_word_embeddings", false);
    const model::Family* const family = model::family_of_type(in.word("model_type", ""));
    sizes.qk_norm = in.flag("qk_norm", family != nullptr && family->qk_norm);
    using Bias = model::Family::Bias;
    const auto rule = [&](Bias model::Family::*bias) {
        return family == nullptr ? Bias::asked : family->*bias;
    };
    const bool attention_bias = in.flag("attention_bias", false);
    sizes.o_bias = has_bias(rule(&model::Family::o_bias), attention_bias);
    sizes.qkv_bias = in.flag("qkv_bias", has_bias(rule(&model::Family::qkv_bias), attention_bias));
    sizes.mlp_bias = has_bias(rule(&model::Family::mlp_bias), in.flag("mlp_bias", false));
    const char* const experts = in.has("n_routed_experts") ? "n_routed_experts" : "num_experts";
    sizes.num_experts = in.count(experts);
    if (sizes.num_experts > 0) {
        sizes.moe_intermediate_size = in.positive("moe_intermediate_size");
        sizes.n_shared_experts = in.count("n_shared_experts");
        sizes.first_k_dense_replace = in.count("first_k_dense_replace");
    }
    if (sizes.num_experts == 0 || sizes.first_k_dense_replace > 0) {
        sizes.intermediate_size = in.positive("intermediate_size");
    }
    sizes.kv_lora_rank = in.count("kv_lora_rank");
    if (sizes.kv_lora_rank > 0) {
        sizes.q_lora_rank = in.count("q_lora_rank");
        sizes.qk_rope_head_dim = in.positive("qk_rope_head_dim");
        sizes.qk_nope_head_dim = in.positive("qk_nope_head_dim");
        sizes.v_head_dim = in.positive("v_head_dim");
        return sizes;
    }
    sizes.num_key_value_heads = in.positive("num_key_value_heads", sizes.num_attention_heads);
    if (!in.has("head_dim") && sizes.hidden_size % sizes.num_attention_heads != 0) {
        in.fail("head_dim", "missing, and hidden_size does not divide by num_attention_heads");
    }
    sizes.head_dim = in.positive("head_dim", sizes.hidden_size / sizes.num_attention_heads);
    return sizes;
}

model::ParameterSpec read_tensor(const json& object, const std::string& file, std::size_t index) {
    const std::string at = "tensors[" + std::to_string(index) + "]";
    const auto fail = [&](const char* key, const std::string& message) {
        throw ConfigError(file, at + (key[0] == '\0' ? "" : ".") + key, message);
    };
    if (!object.is_object()) fail("", "must be an object");
    model::ParameterSpec tensor;
    if (!object.contains("name") || !object["name"].is_string()) fail("name", "must be a string");
    tensor.name = object["name"].get<std::string>();
    if (!object.contains("shape") || !object["shape"].is_array()) fail("shape", "must be a list of sizes");
    for (const json& size : object["shape"]) {
        if (!size.is_number_integer() || size < 0 || size > kLargest)
            fail("shape", "must be a list of sizes");
        tensor.shape.push_back(size.get<std::int64_t>());
    }
    constexpr std::array<std::pair<const char*, model::Cut>, 5> kCuts{
        {{"replicate", model::Cut::replicate},
         {"column", model::Cut::column},
         {"row", model::Cut::row},
         {"expert", model::Cut::expert},
         {"vocabulary", model::Cut::vocabulary}}};
    const json style = object.value("parallel", json("replicate"));
    bool known = false;
    for (const auto& [word, cut] : kCuts) {
        if (style != word) continue;
        tensor.cut = cut;
        known = true;
    }
    if (!known) fail("parallel", "must be replicate, column, row, expert or vocabulary");
    const json heads = object.value("heads", json(0));
    if (!heads.is_number_integer() || heads < 0 || heads > 1'000'000) fail("heads", "must be a count");
    return model::named_parameter(std::move(tensor.name), std::move(tensor.shape), tensor.cut,
                                  heads.get<int>());
}

}  // namespace

ModelShapes read_model_shapes(const std::string& json_text, const std::string& file) {
    json parsed;
    try {
        parsed = parse_json_text(json_text, any_values(json_text));
    } catch (const BadInput& error) {
        throw ConfigError(file, "", error.what());
    }
    if (!parsed.is_object()) throw ConfigError(file, "", "must be a JSON object");
    if (!parsed.contains("tensors")) {
        const model::DecoderSizes sizes = read_sizes(Reader(parsed, file));
        return {model::parameter_specs(sizes), sizes};
    }
    if (!parsed["tensors"].is_array()) throw ConfigError(file, "tensors", "must be a list");
    std::vector<model::ParameterSpec> tensors;
    for (std::size_t i = 0; i < parsed["tensors"].size(); ++i) {
        tensors.push_back(read_tensor(parsed["tensors"][i], file, i));
    }
    return {std::move(tensors), std::nullopt};
}

}  // namespace tandem::sync
