// config.json in and out: each family with transformers' own defaults for what is not said.
#include "common/model/model_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/config_json.h"
#include "common/model/config_reader.h"
#include "common/model/families.h"
#include "common/model/parameters.h"
#include "common/model/rope_json.h"
#include "common/text_file.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string supported_families() {
    std::string names;
    for (const Family& family : kFamilies)
        names.append(names.empty() ? "" : ", ").append(family.architecture);
    return "supported: " + names;
}

// Norms and biases decide the family; null: none has these together.
const Family* family_of(const ModelConfig& config) {
    const bool attention_bias = config.qkv_bias || config.o_bias;
    for (const Family& family : kFamilies) {
        if (family.qk_norm == config.qk_norm &&
            has_bias(family.qkv_bias, attention_bias) == config.qkv_bias &&
            has_bias(family.o_bias, attention_bias) == config.o_bias &&
            has_bias(family.mlp_bias, config.mlp_bias) == config.mlp_bias)
            return &family;
    }
    return nullptr;
}

const Family& known_family_of(const ModelConfig& config) {
    const Family* family = family_of(config);
    enforce(family != nullptr, "no supported architecture has these norms and biases together");
    return *family;
}

const Family& read_family(const ConfigReader& reader) {
    if (!reader.has("architectures")) {  // as of a model that was never saved: transformers goes by this one
        const std::string type = reader.text("model_type", "");
        for (const Family& family : kFamilies) {
            if (type == family.model_type) return family;
        }
        reader.refuse("architectures", "missing; " + supported_families());
    }
    const json& list = reader.at("architectures");
    if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
        reader.refuse("architectures", "must be a list of one name; " + supported_families());
    }
    const auto name = list[0].get<std::string>();
    for (const Family& family : kFamilies) {
        if (name == family.architecture) return family;
    }
    reader.refuse("architectures", "\"" + name + "\" is not supported; " + supported_families());
}

// Everything that would silently change the forward pass is refused here.
void refuse_what_we_do_not_compute(const ConfigReader& reader) {
    if (reader.boolean("use_sliding_window", false)) {
        reader.refuse("use_sliding_window", "sliding windows are not supported");
    }
    if (reader.has("layer_types")) {
        for (const json& type : reader.at("layer_types")) {
            if (type != "full_attention") {
                reader.refuse("layer_types",
                              type.dump() + " is not supported; supported: \"full_attention\"");
            }
        }
    }
    if (reader.boolean("rope_interleaved", false)) {
        reader.refuse("rope_interleaved", "interleaved rotary embedding is not supported");
    }
    if (reader.has("quantization_config")) {
        reader.refuse("quantization_config",
                      "quantised weights are not supported; supported: float32, bfloat16, float16");
    }
    const std::string activation = reader.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish")  // two names of one function
        reader.refuse("hidden_act", "\"" + activation + "\" is not supported; supported: silu");
}

// null is as many as heads in every family.
std::int64_t read_kv_heads(const ConfigReader& reader, const Family& family, std::int64_t heads) {
    const char* key = "num_key_value_heads";
    return reader.integer(key, family.kv_heads == 0 || reader.given(key) ? heads : family.kv_heads);
}

std::int64_t read_head_dim(const ConfigReader& reader, const Family& family, const ModelConfig& config) {
    if (reader.has("head_dim")) return reader.integer("head_dim");
    if (family.head_dim != 0 && !reader.given("head_dim")) return family.head_dim;
    if (config.num_attention_heads <= 0) reader.refuse("num_attention_heads", "must be positive");
    if (config.hidden_size % config.num_attention_heads != 0) {
        reader.refuse("head_dim", fmt::format("missing, and hidden_size {} does not divide by {} heads",
                                              config.hidden_size, config.num_attention_heads));
    }
    return config.hidden_size / config.num_attention_heads;
}

void read_eos(const ConfigReader& reader, ModelConfig& config) {
    if (!reader.has("eos_token_id")) return;
    const json& eos = reader.at("eos_token_id");
    const json list = eos.is_array() ? eos : json::array({eos});
    for (const json& id : list) {
        if (!id.is_number_integer())
            reader.refuse("eos_token_id", "must be an integer or a list of integers");
        const auto value = id.get<std::int64_t>();
        if (value < 0 || value >= config.vocab_size) {
            reader.refuse("eos_token_id",
                          fmt::format("{} is outside the vocabulary of {}", value, config.vocab_size));
        }
        if (config.eos_token_id < 0) {
            config.eos_token_id = static_cast<std::int32_t>(value);
        } else {
            config.more_eos_token_ids.push_back(static_cast<std::int32_t>(value));
        }
    }
}

DType read_dtype(const ConfigReader& reader) {
    // transformers 5's name counts before transformers 4's, as in transformers 5.
    const char* key = reader.has("dtype") ? "dtype" : "torch_dtype";
    const std::string name = reader.text(key, "float32");
    const std::string_view word = std::string_view(name).substr(name.starts_with("torch.") ? 6 : 0);
    if (word == "float32" || word == "float" || word == "fp32") return DType::float32;
    if (word == "bfloat16" || word == "bf16") return DType::bfloat16;
    if (word == "float16" || word == "half" || word == "fp16") return DType::float16;
    reader.refuse(key, "\"" + name + "\" is not supported; supported: float32, bfloat16, float16");
}

// The shortest decimal that reads back as the same float: 1e-06 and not 9.999999974752427e-07.
double shortest(float value) {
    return std::stod(fmt::format("{}", value));
}

}  // namespace

void ModelConfig::validate(const std::string& file) const {
    // Far above any model, and such that no product or sum of them overflows.
    constexpr std::int64_t kMany = std::int64_t{1} << 30, kWide = 1 << 22;
    const std::tuple<const char*, std::int64_t, std::int64_t> sizes[] = {
        {"vocab_size", vocab_size, kMany},
        {"hidden_size", hidden_size, kWide},
        {"intermediate_size", intermediate_size, kWide},
        {"num_hidden_layers", num_hidden_layers, 1 << 14},
        {"num_attention_heads", num_attention_heads, 1 << 16},
        {"num_key_value_heads", num_key_value_heads, 1 << 16},
        {"head_dim", head_dim, 1 << 16},
        {"max_position_embeddings", max_position_embeddings, kMany}};
    for (const auto& [key, value, most] : sizes) {
        if (value <= 0 || value > most) {
            throw ConfigError(file, key,
                              fmt::format("must be a positive size of at most {}, is {}", most, value));
        }
    }
    if (num_attention_heads * head_dim > kWide) {
        throw ConfigError(
            file, "head_dim",
            fmt::format("{} heads of {} are more than {} wide", num_attention_heads, head_dim, kWide));
    }
    if (num_attention_heads % num_key_value_heads != 0) {
        throw ConfigError(file, "num_attention_heads",
                          fmt::format("{} heads cannot be shared by {} key-value heads: must be a multiple",
                                      num_attention_heads, num_key_value_heads));
    }
    if (head_dim % 2 != 0) {
        throw ConfigError(file, "head_dim",
                          fmt::format("must be even for rotary embedding, is {}", head_dim));
    }
    if (!(rms_norm_eps > 0) || !std::isfinite(rms_norm_eps)) {
        throw ConfigError(file, "rms_norm_eps", fmt::format("must be positive, is {}", rms_norm_eps));
    }
    validate_rope(*this, file);
    if (family_of(*this) == nullptr) {
        throw ConfigError(file, "attention_bias",
                          "no supported architecture has these norms and biases together");
    }
    if (eos_token_id < -1 || eos_token_id >= vocab_size) {
        throw ConfigError(file, "eos_token_id",
                          fmt::format("{} is outside the vocabulary of {}", eos_token_id, vocab_size));
    }
    if (torch_dtype != DType::float32 && torch_dtype != DType::bfloat16 && torch_dtype != DType::float16) {
        throw ConfigError(file, "torch_dtype", "must be float32, bfloat16 or float16");
    }
}

std::string ModelConfig::architecture() const {
    return known_family_of(*this).architecture;
}

std::string ModelConfig::model_type() const {
    return known_family_of(*this).model_type;
}

RopeFrequencies ModelConfig::rope_frequencies() const {
    return model::rope_frequencies(rope_theta, rope_scaling, head_dim);
}

std::int64_t ModelConfig::parameter_count() const {
    std::int64_t total = 0;
    for (const ParameterSpec& spec : parameter_specs(*this)) total += numel(spec.shape);
    return total;
}

ModelConfig parse_model_config(const std::string& json_text, const std::string& file) {
    return config_of(parse_json_file(json_text, file), file);
}

ModelConfig config_of(const json& parsed, const std::string& file) {
    if (!parsed.is_object()) throw ConfigError(file, "", "must be a JSON object");
    const ConfigReader reader(parsed, file);

    ModelConfig config;
    const Family& family = read_family(reader);
    config.qk_norm = family.qk_norm;
    // A key that the family does not read is ignored here, too.
    const auto bias = [&](Family::Bias rule, const char* key) {
        return has_bias(rule, rule == Family::Bias::asked && reader.boolean(key, false));
    };
    config.qkv_bias = bias(family.qkv_bias, "attention_bias");
    config.o_bias = bias(family.o_bias, "attention_bias");
    config.mlp_bias = bias(family.mlp_bias, "mlp_bias");
    refuse_what_we_do_not_compute(reader);
    config.vocab_size = reader.integer("vocab_size");
    config.hidden_size = reader.integer("hidden_size");
    config.intermediate_size = reader.integer("intermediate_size");
    config.num_hidden_layers = reader.integer("num_hidden_layers");
    config.num_attention_heads = reader.integer("num_attention_heads");
    config.num_key_value_heads = read_kv_heads(reader, family, config.num_attention_heads);
    config.head_dim = read_head_dim(reader, family, config);
    config.max_position_embeddings = reader.integer("max_position_embeddings", family.context);
    config.rms_norm_eps = static_cast<float>(reader.number("rms_norm_eps", 1e-6));
    read_rope(reader, config);
    config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    config.torch_dtype = read_dtype(reader);
    config.validate(file);
    read_eos(reader, config);
    return config;
}

ModelConfig read_model_config(const std::string& directory) {
    const std::string file = (std::filesystem::path(directory) / "config.json").string();
    std::error_code ignored;
    if (!std::filesystem::is_directory(directory, ignored)) {
        throw ConfigError(directory, "", "is not a directory; a Hugging Face model directory is needed");
    }
    if (!std::filesystem::exists(file, ignored))
        throw ConfigError(file, "", "cannot be opened; a Hugging Face model directory has a config.json");
    return parse_model_config(read_text_file(file), file);
}

bool ties_embeddings(const std::filesystem::path& directory) {
    const auto config = json_text_or_nothing(read_text_file_if_there((directory / "config.json").string()));
    const char* key = "tie_word_embeddings";
    return config.is_object() && config.contains(key) && config[key] == true;
}

std::string to_json(const ModelConfig& config) {
    ordered_json out;
    out["architectures"] = {config.architecture()};
    out["model_type"] = config.model_type();
    const Family& family = known_family_of(config);
    if (family.qkv_bias == Family::Bias::asked) out["attention_bias"] = config.qkv_bias;
    if (family.mlp_bias == Family::Bias::asked) out["mlp_bias"] = config.mlp_bias;
    if (config.eos_token_id < 0) {
        out["eos_token_id"] = nullptr;
    } else if (config.more_eos_token_ids.empty()) {
        out["eos_token_id"] = config.eos_token_id;
    } else {
        out["eos_token_id"] = {config.eos_token_id};
        for (const std::int32_t id : config.more_eos_token_ids) out["eos_token_id"].push_back(id);
    }
    out["head_dim"] = config.head_dim;
    out["hidden_act"] = "silu";
    out["hidden_size"] = config.hidden_size;
    out["intermediate_size"] = config.intermediate_size;
    out["max_position_embeddings"] = config.max_position_embeddings;
    out["num_attention_heads"] = config.num_attention_heads;
    out["num_hidden_layers"] = config.num_hidden_layers;
    out["num_key_value_heads"] = config.num_key_value_heads;
    out["rms_norm_eps"] = shortest(config.rms_norm_eps);
    write_rope(config, out);
    out["tie_word_embeddings"] = config.tie_word_embeddings;
    out["torch_dtype"] = std::string(dtype_name(config.torch_dtype));
    if (family.sliding_window) out["use_sliding_window"] = false;
    out["vocab_size"] = config.vocab_size;
    return out.dump(2) + "\n";
}

}  // namespace tandem::model
