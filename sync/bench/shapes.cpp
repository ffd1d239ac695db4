#include "sync/bench/shapes.h"

#include <array>
#include <filesystem>

#include "common/error.h"
#include "common/user_file.h"

namespace tandem::sync {
namespace {

// From the models' config.json; Qwen3-MoE-1B has the proportions of Qwen3-30B-A3B at a size for one machine.
struct Row {
    const char* name;
    std::int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
    bool tied, qk_norm;
    bool qkv_bias = false;
    std::int64_t experts = 0, expert_ffn = 0;
};
constexpr std::array kModels{
    Row{"tiny", 512, 64, 256, 2, 4, 2, 16, true, true},
    Row{"SmolLM2-135M", 49152, 576, 1536, 30, 9, 3, 64, true, false},
    Row{"Qwen2.5-0.5B", 151936, 896, 4864, 24, 14, 2, 64, true, false, true},
    Row{"Llama-3.2-1B", 128256, 2048, 8192, 16, 32, 8, 64, true, false},
    Row{"Qwen3-0.6B", 151936, 1024, 3072, 28, 16, 8, 128, true, true},
    Row{"Qwen3-4B", 151936, 2560, 9728, 36, 32, 8, 128, true, true},
    Row{"Llama-3.1-8B", 128256, 4096, 14336, 32, 32, 8, 128, false, false},
    Row{"Qwen3-MoE-1B", 151936, 1024, 3072, 12, 16, 4, 64, true, true, false, 32, 384},
};

const Row* row_named(const std::string& name) {
    for (const Row& row : kModels) {
        if (name == row.name) return &row;
    }
    return nullptr;
}

std::string all_names() {
    std::string names;
    for (const std::string& one : shape_names()) names.append(names.empty() ? "" : ", ").append(one);
    return names;
}

model::DecoderSizes sizes_of(const Row& row) {
    model::DecoderSizes sizes;
    sizes.vocab_size = row.vocab;
    sizes.hidden_size = row.hidden;
    sizes.intermediate_size = row.ffn;
    sizes.num_hidden_layers = row.layers;
    sizes.num_attention_heads = row.heads;
    sizes.num_key_value_heads = row.kv_heads;
    sizes.head_dim = row.head_dim;
    sizes.tie_word_embeddings = row.tied;
    sizes.qk_norm = row.qk_norm;
    sizes.qkv_bias = row.qkv_bias;
    sizes.num_experts = row.experts;
    sizes.moe_intermediate_size = row.expert_ffn;
    return sizes;
}

}  // namespace

std::vector<std::string> shape_names() {
    std::vector<std::string> names;
    for (const Row& row : kModels) names.emplace_back(row.name);
    return names;
}

model::ModelConfig model_by_name(const std::string& name) {
    const Row* row = row_named(name);
    enforce(row != nullptr, "no shapes '{}'; there are {}", name, all_names());
    enforce(row->experts == 0, "'{}' is a mixture of experts; a dense model is needed here", name);
    model::ModelConfig config;
    static_cast<model::DecoderSizes&>(config) = sizes_of(*row);
    config.max_position_embeddings = 4096;
    return config;
}

ModelShapes model_shapes(const std::string& name_or_file) {
    if (const Row* row = row_named(name_or_file))
        return {model::parameter_specs(sizes_of(*row)), sizes_of(*row)};
    enforce(std::filesystem::exists(name_or_file), "no shapes and no file '{}'; there are {}", name_or_file,
            all_names());
    return read_model_shapes(read_user_file(name_or_file), name_or_file);
}

std::vector<model::ParameterSpec> model_tensors(const std::string& name_or_file) {
    return model_shapes(name_or_file).tensors;
}

}  // namespace tandem::sync
