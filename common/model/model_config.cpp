// config.json in and out. Two architectures share our decoder: Qwen3ForCausalLM has a norm per head on q and
// k, LlamaForCausalLM (without rope scaling) has none; so qk_norm is what the architecture says, in both
// directions.
#include "common/model/model_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/error.h"
#include "common/model/parameters.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Reads one key after another out of a parsed object, with errors that name file and key.
class Reader {
  public:
    Reader(const json& object, const std::string& file) : object_(object), file_(file) {}

    bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

    std::int64_t integer(const char* key) const {
        if (!has(key)) throw ConfigError(file_, key, "missing");
        if (!object_[key].is_number_integer()) throw ConfigError(file_, key, "must be an integer");
        return object_[key].get<std::int64_t>();
    }
    std::int64_t integer(const char* key, std::int64_t fallback) const {
        return has(key) ? integer(key) : fallback;
    }
    float number(const char* key, float fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_number()) throw ConfigError(file_, key, "must be a number");
        return object_[key].get<float>();
    }
    bool boolean(const char* key, bool fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_boolean()) throw ConfigError(file_, key, "must be true or false");
        return object_[key].get<bool>();
    }
    std::string text(const char* key, const std::string& fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_string()) throw ConfigError(file_, key, "must be a string");
        return object_[key].get<std::string>();
    }
    const json& at(const char* key) const { return object_[key]; }
    [[noreturn]] void refuse(const char* key, const std::string& message) const {
        throw ConfigError(file_, key, message);
    }

  private:
    const json& object_;
    const std::string& file_;
};

std::string read_architecture(const Reader& reader) {
    const std::string supported = "supported: Qwen3ForCausalLM, LlamaForCausalLM";
    if (!reader.has("architectures")) reader.refuse("architectures", "missing; " + supported);
    const json& list = reader.at("architectures");
    if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
        reader.refuse("architectures", "must be a list of one name; " + supported);
    }
    const auto name = list[0].get<std::string>();
    if (name != "Qwen3ForCausalLM" && name != "LlamaForCausalLM") {
        reader.refuse("architectures", "\"" + name + "\" is not supported; " + supported);
    }
    return name;
}

// Everything that would silently change the forward pass is refused here.
void refuse_what_we_do_not_compute(const Reader& reader) {
    if (reader.boolean("attention_bias", false)) reader.refuse("attention_bias", "biases are not supported");
    if (reader.boolean("mlp_bias", false)) reader.refuse("mlp_bias", "biases are not supported");
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
    const std::string activation = reader.text("hidden_act", "silu");
    if (activation != "silu")
        reader.refuse("hidden_act", "\"" + activation + "\" is not supported; supported: silu");
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        if (!reader.has(key)) continue;
        const json& rope = reader.at(key);
        if (!rope.is_object()) reader.refuse(key, "must be an object or null");
        const json type =
            rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", json("default"));
        if (type != "default")
            reader.refuse(key, "rope scaling of type " + type.dump() + " is not supported");
    }
}

float read_rope_theta(const Reader& reader) {
    if (!reader.has("rope_theta") && reader.has("rope_parameters")) {  // transformers 5 keeps it in here
        const json& rope = reader.at("rope_parameters");
        if (rope.contains("rope_theta") && rope["rope_theta"].is_number())
            return rope["rope_theta"].get<float>();
    }
    return reader.number("rope_theta", 10000.0f);
}

void read_eos(const Reader& reader, ModelConfig& config) {
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

DType read_dtype(const Reader& reader) {
    const char* key = reader.has("torch_dtype") ? "torch_dtype" : "dtype";  // transformers 5 renamed it
    const std::string name = reader.text(key, "float32");
    if (name == "float32") return DType::float32;
    if (name == "bfloat16") return DType::bfloat16;
    reader.refuse(key, "\"" + name + "\" is not supported; supported: float32, bfloat16");
}

// The shortest decimal that reads back as the same float: 1e-06 and not 9.999999974752427e-07.
double shortest(float value) {
    return std::stod(fmt::format("{}", value));
}

}  // namespace

void ModelConfig::validate(const std::string& file) const {
    const std::pair<const char*, std::int64_t> sizes[] = {
        {"vocab_size", vocab_size},
        {"hidden_size", hidden_size},
        {"intermediate_size", intermediate_size},
        {"num_hidden_layers", num_hidden_layers},
        {"num_attention_heads", num_attention_heads},
        {"num_key_value_heads", num_key_value_heads},
        {"head_dim", head_dim},
        {"max_position_embeddings", max_position_embeddings}};
    for (const auto& [key, value] : sizes) {
        if (value <= 0 || value > (std::int64_t{1} << 30)) {
            throw ConfigError(file, key, fmt::format("must be a positive size, is {}", value));
        }
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
    if (!(rope_theta > 0) || !std::isfinite(rope_theta)) {
        throw ConfigError(file, "rope_theta", fmt::format("must be positive, is {}", rope_theta));
    }
    if (eos_token_id < -1 || eos_token_id >= vocab_size) {
        throw ConfigError(file, "eos_token_id",
                          fmt::format("{} is outside the vocabulary of {}", eos_token_id, vocab_size));
    }
    if (torch_dtype != DType::float32 && torch_dtype != DType::bfloat16) {
        throw ConfigError(file, "torch_dtype", "must be float32 or bfloat16");
    }
}

std::int64_t ModelConfig::parameter_count() const {
    std::int64_t total = 0;
    for (const ParameterSpec& spec : parameter_specs(*this)) total += numel(spec.shape);
    return total;
}

ModelConfig parse_model_config(const std::string& json_text, const std::string& file) {
    json parsed;
    try {
        parsed = json::parse(json_text);
    } catch (const json::exception& error) {
        throw ConfigError(file, "", std::string("malformed JSON: ") + error.what());
    }
    if (!parsed.is_object()) throw ConfigError(file, "", "must be a JSON object");
    const Reader reader(parsed, file);

    ModelConfig config;
    config.architecture = read_architecture(reader);
    config.qk_norm = config.architecture == "Qwen3ForCausalLM";
    config.model_type = reader.text("model_type", config.qk_norm ? "qwen3" : "llama");
    refuse_what_we_do_not_compute(reader);
    config.vocab_size = reader.integer("vocab_size");
    config.hidden_size = reader.integer("hidden_size");
    config.intermediate_size = reader.integer("intermediate_size");
    config.num_hidden_layers = reader.integer("num_hidden_layers");
    config.num_attention_heads = reader.integer("num_attention_heads");
    config.num_key_value_heads = reader.integer("num_key_value_heads", config.num_attention_heads);
    if (config.num_attention_heads <= 0) reader.refuse("num_attention_heads", "must be positive");
    // transformers' own defaults: 128 in Qwen3Config, hidden_size / heads in LlamaConfig
    config.head_dim =
        reader.integer("head_dim", config.qk_norm ? 128 : config.hidden_size / config.num_attention_heads);
    config.max_position_embeddings = reader.integer("max_position_embeddings", config.qk_norm ? 32768 : 2048);
    config.rms_norm_eps = reader.number("rms_norm_eps", 1e-6f);
    config.rope_theta = read_rope_theta(reader);
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
    std::ifstream stream(file, std::ios::binary);
    if (!stream)
        throw ConfigError(file, "", "cannot be opened; a Hugging Face model directory has a config.json");
    std::ostringstream text;
    text << stream.rdbuf();
    return parse_model_config(text.str(), file);
}

std::string to_json(const ModelConfig& config) {
    ordered_json out;
    out["architectures"] = {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
    out["model_type"] = config.qk_norm ? "qwen3" : "llama";
    out["attention_bias"] = false;
    if (!config.qk_norm) out["mlp_bias"] = false;
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
    out["rope_scaling"] = nullptr;
    out["rope_theta"] = shortest(config.rope_theta);
    out["tie_word_embeddings"] = config.tie_word_embeddings;
    out["torch_dtype"] = std::string(dtype_name(config.torch_dtype));
    if (config.qk_norm) out["use_sliding_window"] = false;
    out["vocab_size"] = config.vocab_size;
    return out.dump(2) + "\n";
}

}  // namespace tandem::model
