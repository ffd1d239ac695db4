#include "tests/cases/models.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <utility>

namespace tandem::test {

namespace {

using nlohmann::json;

struct Matrix {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};
using Weights = std::map<std::string, Matrix>;

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string utf8(unsigned code_point) {
    if (code_point < 0x80) return {static_cast<char>(code_point)};
    return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

// How byte-level BPE spells each byte.
std::vector<std::string> byte_alphabet() {
    std::vector<std::string> result;
    unsigned extra = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool visible =
            (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || (byte >= 174 && byte < 256);
        result.push_back(utf8(visible ? byte : extra++));
    }
    return result;
}

void update(json& object, const json& keys) {
    for (const auto& [key, value] : keys.items()) {
        if (value == kDrop)
            object.erase(key);
        else
            object[key] = value;
    }
}

void write_json(const std::string& file, const json& value) {
    write_text(file, value.dump(1));
}

// first_byte: the id of byte 0.
void write_tokenizer(const std::string& folder, const std::vector<std::pair<int, std::string>>& special,
                     int first_byte) {
    json added = json::array(), vocabulary = json::object();
    for (const auto& [id, content] : special) {
        added.push_back({{"id", id},
                         {"content", content},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
        if (id < first_byte) vocabulary[content] = id;
    }
    int id = first_byte;
    for (const std::string& spelling : byte_alphabet()) vocabulary[spelling] = id++;
    const json level{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    write_json(folder + "/tokenizer.json", {{"version", "1.0"},
                                            {"truncation", nullptr},
                                            {"padding", nullptr},
                                            {"added_tokens", added},
                                            {"normalizer", nullptr},
                                            {"pre_tokenizer", level},
                                            {"post_processor", nullptr},
                                            {"decoder", level},
                                            {"model",
                                             {{"type", "BPE"},
                                              {"dropout", nullptr},
                                              {"unk_token", nullptr},
                                              {"continuing_subword_prefix", nullptr},
                                              {"end_of_word_suffix", nullptr},
                                              {"fuse_unk", false},
                                              {"byte_fallback", false},
                                              {"ignore_merges", false},
                                              {"vocab", vocabulary},
                                              {"merges", json::array()}}}});
}

std::uint16_t half(float value) {
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

std::uint16_t bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void write_safetensors(const std::string& file, const Weights& weights, const std::string& dtype) {
    json header{{"__metadata__", {{"format", "pt"}}}};
    std::string data;
    for (const auto& [name, matrix] : weights) {
        const std::size_t begin = data.size();
        for (float value : matrix.values) {
            if (dtype == "F32") {
                data.append(reinterpret_cast<const char*>(&value), 4);
            } else {
                const std::uint16_t bits = dtype == "F16" ? half(value) : bfloat16(value);
                data.append(reinterpret_cast<const char*>(&bits), 2);
            }
        }
        header[name] = {{"dtype", dtype}, {"shape", matrix.shape}, {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = text.size();
    write_text(file, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

class Draw {
  public:
    explicit Draw(unsigned seed) : random_(seed) {}
    Matrix matrix(std::vector<std::size_t> shape, float scale, float base = 0) {
        std::normal_distribution<float> normal;
        Matrix result{std::move(shape), {}};
        result.values.resize(size_of(result.shape));
        for (float& value : result.values) value = base + scale * normal(random_);
        return result;
    }
    static Matrix zeros(std::vector<std::size_t> shape) {
        Matrix result{std::move(shape), {}};
        result.values.resize(size_of(result.shape));
        return result;
    }

  private:
    static std::size_t size_of(const std::vector<std::size_t>& shape) {
        std::size_t size = 1;
        for (std::size_t extent : shape) size *= extent;
        return size;
    }
    std::mt19937 random_;
};

struct Sizes {
    std::string architecture, family;
    std::size_t hidden, layers, heads, kv_heads, head_dim, feed_forward, vocabulary;
    bool tied;
};

json config_of(const Sizes& s) {
    return {{"architectures", {s.architecture}},
            {"model_type", s.family},
            {"hidden_size", s.hidden},
            {"num_hidden_layers", s.layers},
            {"num_attention_heads", s.heads},
            {"num_key_value_heads", s.kv_heads},
            {"head_dim", s.head_dim},
            {"intermediate_size", s.feed_forward},
            {"vocab_size", s.vocabulary},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", s.tied},
            {"max_position_embeddings", 512},
            {"hidden_act", "silu"},
            {"torch_dtype", "float32"}};
}

// silent: layers that add nothing to what they are given.
Weights weights_of(const Sizes& s, unsigned seed, bool silent) {
    Draw draw(seed);
    const float scale = s.family == "qwen2" ? .4F : .08F;
    Weights w;
    w["model.embed_tokens.weight"] = draw.matrix({s.vocabulary, s.hidden}, s.family == "qwen2" ? scale : .3F);
    w["model.norm.weight"] = draw.matrix({s.hidden}, 0, 1);
    if (!s.tied) w["lm_head.weight"] = draw.matrix({s.vocabulary, s.hidden}, scale);
    for (std::size_t layer = 0; layer < s.layers; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
            w[prefix + norm + ".weight"] = draw.matrix({s.hidden}, .05F, 1);
        const std::map<std::string, std::size_t> rows{
            {"q", s.heads * s.head_dim}, {"k", s.kv_heads * s.head_dim}, {"v", s.kv_heads * s.head_dim}};
        for (const auto& [name, n] : rows) {
            w[prefix + "self_attn." + name + "_proj.weight"] = draw.matrix({n, s.hidden}, scale);
            if (s.family == "qwen2") w[prefix + "self_attn." + name + "_proj.bias"] = draw.matrix({n}, scale);
        }
        if (s.family == "qwen3") {
            for (const char* norm : {"q_norm", "k_norm"})
                w[prefix + "self_attn." + norm + ".weight"] = draw.matrix({s.head_dim}, .05F, 1);
        }
        const float back = silent ? 0 : scale;
        w[prefix + "self_attn.o_proj.weight"] = draw.matrix({s.hidden, s.heads * s.head_dim}, back);
        w[prefix + "mlp.gate_proj.weight"] = draw.matrix({s.feed_forward, s.hidden}, scale);
        w[prefix + "mlp.up_proj.weight"] = draw.matrix({s.feed_forward, s.hidden}, scale);
        w[prefix + "mlp.down_proj.weight"] = draw.matrix({s.hidden, s.feed_forward}, back);
    }
    return w;
}

// All but the tokenizer.
void write_model(const std::string& folder, json config, Weights weights, const CaseModel& model) {
    std::filesystem::create_directories(folder);
    update(config, model.config);
    write_json(folder + "/config.json", config);
    if (model.generation_config) write_json(folder + "/generation_config.json", *model.generation_config);
    for (const Poke& poke : model.pokes) {
        Matrix& matrix = weights.at(poke.tensor);
        matrix.values.at(poke.row * matrix.shape.back() + poke.column) = poke.value;
    }
    write_safetensors(folder + "/model.safetensors", weights, model.dtype);
}

const std::vector<std::pair<int, std::string>> kSpecial = {
    {0, "<|endoftext|>"}, {1, "<|im_start|>"}, {2, "<|im_end|>"}};

void write_chat_tokenizer(const std::string& folder, const CaseModel& model) {
    if (!model.tokenizer) return;
    write_tokenizer(folder, kSpecial, 3);
    json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"eos_token", "<|im_end|>"},
                {"pad_token", "<|endoftext|>"},
                {"model_max_length", 2048},
                {"clean_up_tokenization_spaces", false},
                {"chat_template", kTemplate}};
    update(config, model.tokenizer_config);
    write_json(folder + "/tokenizer_config.json", config);
}

json with_ends(json config) {
    config.update({{"bos_token_id", 0}, {"eos_token_id", 2}, {"attention_bias", false}});
    return config;
}

std::size_t token_of(const std::string& word) {
    for (const auto& [id, content] : kSpecial) {
        if (word == content) return static_cast<std::size_t>(id);
    }
    return static_cast<std::size_t>(case_token(word.at(0)));
}

}  // namespace

int case_token(char byte) {
    return 3 + static_cast<unsigned char>(byte);
}

void write_text(const std::string& file, const std::string& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << text;
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

void change_json(const std::string& file, const json& keys) {
    json value;
    std::ifstream(file) >> value;
    update(value, keys);
    write_json(file, value);
}

void write_tiny(const std::string& folder, const CaseModel& model) {
    const Sizes sizes{"Qwen3ForCausalLM", "qwen3", 32, 2, 4, 2, 8, 48, kCaseVocabulary, !model.untied};
    write_model(folder, with_ends(config_of(sizes)), weights_of(sizes, model.seed, false), model);
    write_chat_tokenizer(folder, model);
}

void write_chain(const std::string& folder, const std::vector<std::string>& words, const CaseModel& model) {
    const Sizes sizes{"LlamaForCausalLM", "llama", kCaseVocabulary, 1, 2, 1, 8, 8, kCaseVocabulary, false};
    Weights weights = weights_of(sizes, 0, true);
    Matrix identity = Draw::zeros({kCaseVocabulary, kCaseVocabulary}), head = identity;
    for (std::size_t i = 0; i < kCaseVocabulary; ++i) identity.values[i * kCaseVocabulary + i] = 1;
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
        head.values[token_of(words[i + 1]) * kCaseVocabulary + token_of(words[i])] = 1;
    weights["model.embed_tokens.weight"] = identity;
    weights["lm_head.weight"] = head;
    write_model(folder, with_ends(config_of(sizes)), std::move(weights), model);
    write_chat_tokenizer(folder, model);
}

void write_qwen2(const std::string& folder, const CaseModel& model) {
    const Sizes sizes{"Qwen2ForCausalLM", "qwen2", 32, 2, 4, 2, 8, 48, 259, false};
    Weights weights = weights_of(sizes, 3, false);
    if (model.ends_with) {
        Matrix& head = weights.at("lm_head.weight");
        head.values.assign(head.values.size(), 0);
        head.values.at(static_cast<std::size_t>(*model.ends_with) * sizes.hidden) = 50;
        head.values.at(65 * sizes.hidden) = -50;
        Matrix& norm = weights.at("model.norm.weight");
        norm.values.assign(norm.values.size(), 0);
        norm.values[0] = 1;
    }
    json config = config_of(sizes);
    config.update({{"bos_token_id", 256}, {"eos_token_id", nullptr}});
    write_model(folder, config, std::move(weights), model);
    if (!model.tokenizer) return;
    write_tokenizer(folder, {{256, "<s>"}, {257, "</s>"}, {258, "<|im_end|>"}}, 0);
    json tokenizer{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    update(tokenizer, model.tokenizer_config);
    write_json(folder + "/tokenizer_config.json", tokenizer);
}

}  // namespace tandem::test
