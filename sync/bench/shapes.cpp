#include "sync/bench/shapes.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/error.h"
#include "common/model/parameters.h"

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

// Adds a model's tensors, one layer at a time.
class Builder {
  public:
    explicit Builder(const ModelShapes& shapes) : s_(shapes) {}

    std::vector<ModelTensor> build() {
        add("model.embed_tokens", {s_.vocab_size, s_.hidden_size}, TensorParallel::vocabulary);
        for (std::int64_t layer = 0; layer < s_.num_hidden_layers; ++layer) {
            prefix_ = fmt::format("model.layers.{}.", layer);
            norm("input_layernorm", s_.hidden_size);
            if (s_.kv_lora_rank > 0) {
                latent_attention();
            } else {
                attention();
            }
            norm("post_attention_layernorm", s_.hidden_size);
            if (s_.num_experts > 0 && layer >= s_.first_k_dense_replace) {
                experts();
            } else {
                mlp("mlp.", s_.intermediate_size, TensorParallel::column, TensorParallel::row, s_.mlp_bias);
            }
        }
        prefix_.clear();
        norm("model.norm", s_.hidden_size);
        if (!s_.tie_word_embeddings) {
            add("lm_head", {s_.vocab_size, s_.hidden_size}, TensorParallel::vocabulary);
        }
        return std::move(tensors_);
    }

  private:
    // A projection: the bias is cut like the weight's rows, and whole where its columns are cut.
    void linear(const std::string& name, Shape shape, TensorParallel parallel, std::int64_t heads,
                bool bias) {
        const std::int64_t out = shape[0];
        add(name, std::move(shape), parallel, heads);
        if (!bias) return;
        const bool rows = parallel == TensorParallel::column;
        tensors_.push_back({prefix_ + name + ".bias",
                            {out},
                            rows ? parallel : TensorParallel::replicate,
                            static_cast<int>(rows ? heads : 0)});
    }
    void add(const std::string& name, Shape shape, TensorParallel parallel, std::int64_t heads = 0) {
        tensors_.push_back({prefix_ + name + ".weight", std::move(shape), parallel, static_cast<int>(heads)});
    }
    void norm(const std::string& name, std::int64_t size) { add(name, {size}, TensorParallel::replicate); }

    void attention() {
        const std::int64_t heads = s_.num_attention_heads;
        const std::int64_t kv_heads = s_.num_key_value_heads;
        const Shape kv{kv_heads * s_.head_dim, s_.hidden_size};
        linear("self_attn.q_proj", {heads * s_.head_dim, s_.hidden_size}, TensorParallel::column, heads,
               s_.qkv_bias);
        linear("self_attn.k_proj", kv, TensorParallel::column, kv_heads, s_.qkv_bias);
        linear("self_attn.v_proj", kv, TensorParallel::column, kv_heads, s_.qkv_bias);
        if (s_.qk_norm) {
            norm("self_attn.q_norm", s_.head_dim);
            norm("self_attn.k_norm", s_.head_dim);
        }
        linear("self_attn.o_proj", {s_.hidden_size, heads * s_.head_dim}, TensorParallel::row, 0, s_.o_bias);
    }

    void latent_attention() {
        const std::int64_t heads = s_.num_attention_heads;
        const std::int64_t q_out = heads * (s_.qk_nope_head_dim + s_.qk_rope_head_dim);
        if (s_.q_lora_rank > 0) {
            add("self_attn.q_a_proj", {s_.q_lora_rank, s_.hidden_size}, TensorParallel::replicate);
            norm("self_attn.q_a_layernorm", s_.q_lora_rank);
            add("self_attn.q_b_proj", {q_out, s_.q_lora_rank}, TensorParallel::column, heads);
        } else {
            add("self_attn.q_proj", {q_out, s_.hidden_size}, TensorParallel::column, heads);
        }
        add("self_attn.kv_a_proj_with_mqa", {s_.kv_lora_rank + s_.qk_rope_head_dim, s_.hidden_size},
            TensorParallel::replicate);
        norm("self_attn.kv_a_layernorm", s_.kv_lora_rank);
        add("self_attn.kv_b_proj", {heads * (s_.qk_nope_head_dim + s_.v_head_dim), s_.kv_lora_rank},
            TensorParallel::column, heads);
        add("self_attn.o_proj", {s_.hidden_size, heads * s_.v_head_dim}, TensorParallel::row);
    }

    void mlp(const std::string& name, std::int64_t size, TensorParallel up, TensorParallel down,
             bool bias = false) {
        linear(name + "gate_proj", {size, s_.hidden_size}, up, 0, bias);
        linear(name + "up_proj", {size, s_.hidden_size}, up, 0, bias);
        linear(name + "down_proj", {s_.hidden_size, size}, down, 0, bias);
    }

    void experts() {
        add("mlp.gate", {s_.num_experts, s_.hidden_size}, TensorParallel::replicate);
        for (std::int64_t e = 0; e < s_.num_experts; ++e) {
            mlp(fmt::format("mlp.experts.{}.", e), s_.moe_intermediate_size, TensorParallel::expert,
                TensorParallel::expert);
        }
        if (s_.n_shared_experts > 0) {
            mlp("mlp.shared_experts.", s_.n_shared_experts * s_.moe_intermediate_size, TensorParallel::column,
                TensorParallel::row);
        }
    }

    const ModelShapes& s_;
    std::string prefix_;
    std::vector<ModelTensor> tensors_;
};

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
    config.vocab_size = row->vocab;
    config.hidden_size = row->hidden;
    config.intermediate_size = row->ffn;
    config.num_hidden_layers = row->layers;
    config.num_attention_heads = row->heads;
    config.num_key_value_heads = row->kv_heads;
    config.head_dim = row->head_dim;
    config.max_position_embeddings = 4096;
    config.tie_word_embeddings = row->tied;
    config.qk_norm = row->qk_norm;
    config.qkv_bias = row->qkv_bias;
    return config;
}

std::vector<ModelTensor> model_tensors(const ModelShapes& shapes) {
    return Builder(shapes).build();
}

std::vector<ModelTensor> model_tensors(const std::string& name_or_file) {
    if (const Row* row = row_named(name_or_file)) {
        ModelShapes shapes;
        shapes.vocab_size = row->vocab;
        shapes.hidden_size = row->hidden;
        shapes.intermediate_size = row->ffn;
        shapes.num_hidden_layers = row->layers;
        shapes.num_attention_heads = row->heads;
        shapes.num_key_value_heads = row->kv_heads;
        shapes.head_dim = row->head_dim;
        shapes.tie_word_embeddings = row->tied;
        shapes.qk_norm = row->qk_norm;
        shapes.qkv_bias = row->qkv_bias;
        shapes.num_experts = row->experts;
        shapes.moe_intermediate_size = row->expert_ffn;
        return model_tensors(shapes);
    }
    enforce(std::filesystem::exists(name_or_file), "no shapes and no file '{}'; there are {}", name_or_file,
            all_names());
    std::ifstream in(name_or_file);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) throw ConfigError(name_or_file, "", "cannot be read");
    return read_model_tensors(text.str(), name_or_file);
}

}  // namespace tandem::sync
