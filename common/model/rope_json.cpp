#include "common/model/rope_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace tandem::model {
namespace {

using nlohmann::json;
using Type = RopeScaling::Type;

Type read_type(const ConfigReader& rope) {
    const char* key = rope.has("rope_type") ? "rope_type" : "type";  // "type": before transformers 4.43
    const std::string word = rope.text(key, "default");
    for (const Type type : {Type::standard, Type::linear, Type::llama3, Type::yarn}) {
        if (word == to_string(type)) return type;
    }
    rope.refuse(key, fmt::format("rope scaling of type \"{}\" is not supported; supported: default, linear, "
                                 "llama3, yarn",
                                 word));
}

std::optional<double> optional_number(const ConfigReader& rope, const char* key) {
    if (!rope.has(key)) return std::nullopt;
    return rope.number(key);
}

// The object that transformers takes: rope_scaling where both are given. Null: neither says anything.
const char* rope_key(const ConfigReader& reader) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        if (!reader.has(key)) continue;
        if (!reader.at(key).is_object()) reader.refuse(key, "must be an object or null");
        if (!reader.at(key).empty()) return key;
    }
    return nullptr;
}

RopeScaling read_scaling(const ConfigReader& reader, const ConfigReader& rope, std::int64_t context) {
    RopeScaling scaling;
    scaling.type = read_type(rope);
    if (scaling.type == Type::standard) return scaling;
    // Phi3 and others keep it outside, and that one counts.
    const char* const original = "original_max_position_embeddings";
    scaling.original_max_position_embeddings = reader.integer(original, rope.integer(original, context));
    if (scaling.type == Type::yarn && rope.given("factor") && !rope.has("factor")) {
        scaling.factor = static_cast<double>(context) / static_cast<double>(std::max<std::int64_t>(
                                                            1, scaling.original_max_position_embeddings));
    } else {
        scaling.factor = rope.number("factor");
    }
    if (scaling.type == Type::llama3) {
        scaling.low_freq_factor = rope.number("low_freq_factor");
        scaling.high_freq_factor = rope.number("high_freq_factor");
    }
    if (scaling.type == Type::yarn) {
        scaling.attention_factor = optional_number(rope, "attention_factor");
        scaling.mscale = optional_number(rope, "mscale");
        scaling.mscale_all_dim = optional_number(rope, "mscale_all_dim");
        scaling.beta_fast = rope.number("beta_fast", scaling.beta_fast);
        scaling.beta_slow = rope.number("beta_slow", scaling.beta_slow);
        scaling.truncate = rope.boolean("truncate", true);
    }
    return scaling;
}

void refuse_partial_rotation(const ConfigReader& reader) {
    if (reader.number("partial_rotary_factor", 1.0) != 1.0)
        reader.refuse("partial_rotary_factor", "rotating a part of a head is not supported");
}

}  // namespace

void read_rope(const ConfigReader& reader, ModelConfig& config) {
    refuse_partial_rotation(reader);
    config.rope_theta = reader.number("rope_theta", 10000.0);
    const char* key = rope_key(reader);
    if (key == nullptr) return;
    const ConfigReader rope(reader.at(key), reader.file(), std::string(key) + ".");
    for (const auto& [name, value] : reader.at(key).items()) {
        if (value.is_object())
            rope.refuse(name.c_str(), "one rotary embedding a layer type is not supported");
    }
    refuse_partial_rotation(rope);
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    config.rope_scaling = read_scaling(reader, rope, config.max_position_embeddings);
}

void write_rope(const ModelConfig& config, nlohmann::ordered_json& out) {
    const RopeScaling& scaling = config.rope_scaling;
    out["rope_scaling"] = nullptr;
    if (scaling.type != Type::standard) {
        nlohmann::ordered_json rope;
        rope["rope_type"] = to_string(scaling.type);
        rope["factor"] = scaling.factor;
        if (scaling.type != Type::linear)
            rope["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
        if (scaling.type == Type::llama3) {
            rope["low_freq_factor"] = scaling.low_freq_factor;
            rope["high_freq_factor"] = scaling.high_freq_factor;
        }
        if (scaling.type == Type::yarn) {
            rope["beta_fast"] = scaling.beta_fast;
            rope["beta_slow"] = scaling.beta_slow;
            if (scaling.attention_factor) rope["attention_factor"] = *scaling.attention_factor;
            if (scaling.mscale) rope["mscale"] = *scaling.mscale;
            if (scaling.mscale_all_dim) rope["mscale_all_dim"] = *scaling.mscale_all_dim;
            if (!scaling.truncate) rope["truncate"] = false;
        }
        out["rope_scaling"] = std::move(rope);
    }
    out["rope_theta"] = config.rope_theta;
}

void validate_rope(const ModelConfig& config, const std::string& file) {
    const auto check = [&](bool good, const char* key, const char* rule, double value) {
        if (!good || !std::isfinite(value))
            throw ConfigError(file, key, fmt::format("{}, is {}", rule, value));
    };
    const RopeScaling& s = config.rope_scaling;
    check(config.rope_theta > 0, "rope_theta", "must be positive", config.rope_theta);
    if (s.type == Type::standard) return;
    check(s.factor > 0, "rope_scaling.factor", "must be positive", s.factor);
    if (s.type == Type::linear) return;
    check(s.original_max_position_embeddings > 0, "rope_scaling.original_max_position_embeddings",
          "must be positive", static_cast<double>(s.original_max_position_embeddings));
    if (s.type == Type::llama3) {
        check(std::isfinite(s.low_freq_factor), "rope_scaling.low_freq_factor", "must be finite",
              s.low_freq_factor);
        check(s.high_freq_factor > s.low_freq_factor, "rope_scaling.high_freq_factor",
              "must be greater than low_freq_factor", s.high_freq_factor);
        return;
    }
    check(config.rope_theta > 1, "rope_theta", "must be greater than 1 for yarn", config.rope_theta);
    check(s.beta_slow > 0, "rope_scaling.beta_slow", "must be positive", s.beta_slow);
    check(s.beta_fast > 0, "rope_scaling.beta_fast", "must be positive", s.beta_fast);
    check(s.attention_factor.value_or(1) > 0, "rope_scaling.attention_factor", "must be positive",
          s.attention_factor.value_or(1));
    check(true, "rope_scaling.mscale", "must be finite", s.mscale.value_or(0));
    check(true, "rope_scaling.mscale_all_dim", "must be finite", s.mscale_all_dim.value_or(0));
}

}  // namespace tandem::model
