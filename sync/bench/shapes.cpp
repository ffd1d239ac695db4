#include "sync/bench/shapes.h"

#include <array>

#include "common/error.h"
#include "common/model/parameters.h"

namespace tandem::sync {
namespace {

// From the models' config.json.
struct Row {
    const char* name;
    std::int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
    bool tied, qk_norm;
};
constexpr std::array kModels{
    Row{"tiny", 512, 64, 256, 2, 4, 2, 16, true, true},
    Row{"SmolLM2-135M", 49152, 576, 1536, 30, 9, 3, 64, true, false},
    Row{"Qwen3-0.6B", 151936, 1024, 3072, 28, 16, 8, 128, true, true},
    Row{"Qwen3-4B", 151936, 2560, 9728, 36, 32, 8, 128, true, true},
    Row{"Llama-3.1-8B", 128256, 4096, 14336, 32, 32, 8, 128, false, false},
};

}  // namespace

std::vector<std::string> shape_names() {
    std::vector<std::string> names;
    for (const Row& row : kModels) names.emplace_back(row.name);
    return names;
}

model::ModelConfig model_by_name(const std::string& name) {
    for (const Row& row : kModels) {
        if (name != row.name) continue;
        model::ModelConfig config;
        config.vocab_size = row.vocab;
        config.hidden_size = row.hidden;
        config.intermediate_size = row.ffn;
        config.num_hidden_layers = row.layers;
        config.num_attention_heads = row.heads;
        config.num_key_value_heads = row.kv_heads;
        config.head_dim = row.head_dim;
        config.max_position_embeddings = 4096;
        config.tie_word_embeddings = row.tied;
        config.qk_norm = row.qk_norm;
        return config;
    }
    std::string names;
    for (const std::string& one : shape_names()) names.append(names.empty() ? "" : ", ").append(one);
    throw InvalidArgument(fmt::format("no shapes '{}'; there are {}", name, names));
}

std::vector<engine::TensorInfo> tensors_of(const model::ModelConfig& config, DType dtype) {
    std::vector<engine::TensorInfo> tensors;
    for (const model::ParameterSpec& spec : model::parameter_specs(config)) {
        tensors.push_back({spec.name, spec.shape, dtype});
    }
    return tensors;
}

}  // namespace tandem::sync
