#include "common/model/parameters.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <utility>

namespace tandem::model {
namespace {

// A role's module, in Hugging Face's names; `after`: what its name begins with below the layer.
struct Module {
    Role role;
    std::string_view after;
    std::string_view name;
};
constexpr std::array kModules{
    Module{Role::embedding, "model.", "embed_tokens"},
    Module{Role::norm, "model.", "norm"},
    Module{Role::head, "", "lm_head"},
    Module{Role::input_norm, "", "input_layernorm"},
    Module{Role::q, "self_attn.", "q_proj"},
    Module{Role::k, "self_attn.", "k_proj"},
    Module{Role::v, "self_attn.", "v_proj"},
    Module{Role::q_norm, "self_attn.", "q_norm"},
    Module{Role::k_norm, "self_attn.", "k_norm"},
    Module{Role::o, "self_attn.", "o_proj"},
    Module{Role::post_norm, "", "post_attention_layernorm"},
    Module{Role::gate, "mlp.", "gate_proj"},
    Module{Role::up, "mlp.", "up_proj"},
    Module{Role::down, "mlp.", "down_proj"},
    Module{Role::q_a, "self_attn.", "q_a_proj"},
    Module{Role::q_a_norm, "self_attn.", "q_a_layernorm"},
    Module{Role::q_b, "self_attn.", "q_b_proj"},
    Module{Role::kv_a, "self_attn.", "kv_a_proj_with_mqa"},
    Module{Role::kv_a_norm, "self_attn.", "kv_a_layernorm"},
    Module{Role::kv_b, "self_attn.", "kv_b_proj"},
    Module{Role::router, "mlp.", "gate"},
};

constexpr const Module& module_of(Role role) {
    for (const Module& module : kModules) {
        if (module.role == role) return module;
    }
    return kModules.front();
}

constexpr std::string_view kLayers = "layers.";
constexpr std::string_view kExperts = "experts.";
constexpr std::string_view kSharedExperts = "shared_experts.";

// Adds a model's parameters, one layer at a time.
class Table {
  public:
    explicit Table(const DecoderSizes& sizes) : s_(sizes) {}

    std::vector<ParameterSpec> build() {
        add(Role::embedding, {s_.vocab_size, s_.hidden_size}, Cut::vocabulary);
        for (layer_ = 0; layer_ < s_.num_hidden_layers; ++layer_) {
            prefix_ = fmt::format("model.{}{}.", kLayers, layer_);
            norm(Role::input_norm, s_.hidden_size);
            s_.kv_lora_rank > 0 ? latent_attention() : attention();
            norm(Role::post_norm, s_.hidden_size);
            if (s_.num_experts > 0 && layer_ >= s_.first_k_dense_replace) {
                experts();
            } else {
                mlp(s_.intermediate_size, Cut::column, Cut::row, s_.mlp_bias);
            }
        }
        layer_ = -1;
        prefix_.clear();
        norm(Role::norm, s_.hidden_size);
        if (!s_.tie_word_embeddings) add(Role::head, {s_.vocab_size, s_.hidden_size}, Cut::vocabulary);
        return std::move(specs_);
    }

  private:
    void attention() {
        const std::int64_t heads = s_.num_attention_heads, kv_heads = s_.num_key_value_heads;
        const Shape q{heads * s_.head_dim, s_.hidden_size}, kv{kv_heads * s_.head_dim, s_.hidden_size};
        add(Role::q, q, Cut::column, heads, s_.qkv_bias);
        add(Role::k, kv, Cut::column, kv_heads, s_.qkv_bias);
        add(Role::v, kv, Cut::column, kv_heads, s_.qkv_bias);
        if (s_.qk_norm) {
            norm(Role::q_norm, s_.head_dim);
            norm(Role::k_norm, s_.head_dim);
        }
        add(Role::o, {q[1], q[0]}, Cut::row, 0, s_.o_bias);
    }

    void latent_attention() {
        const std::int64_t heads = s_.num_attention_heads;
        const std::int64_t q_out = heads * (s_.qk_nope_head_dim + s_.qk_rope_head_dim);
        if (s_.q_lora_rank > 0) {
            add(Role::q_a, {s_.q_lora_rank, s_.hidden_size}, Cut::replicate);
            norm(Role::q_a_norm, s_.q_lora_rank);
            add(Role::q_b, {q_out, s_.q_lora_rank}, Cut::column, heads);
        } else {
            add(Role::q, {q_out, s_.hidden_size}, Cut::column, heads);
        }
        add(Role::kv_a, {s_.kv_lora_rank + s_.qk_rope_head_dim, s_.hidden_size}, Cut::replicate);
        norm(Role::kv_a_norm, s_.kv_lora_rank);
        add(Role::kv_b, {heads * (s_.qk_nope_head_dim + s_.v_head_dim), s_.kv_lora_rank}, Cut::column, heads);
        add(Role::o, {s_.hidden_size, heads * s_.v_head_dim}, Cut::row);
    }

    void mlp(std::int64_t size, Cut wide, Cut narrow, bool bias = false) {
        add(Role::gate, {size, s_.hidden_size}, wide, 0, bias);
        add(Role::up, {size, s_.hidden_size}, wide, 0, bias);
        add(Role::down, {s_.hidden_size, size}, narrow, 0, bias);
    }

    void experts() {
        add(Role::router, {s_.num_experts, s_.hidden_size}, Cut::replicate);
        for (expert_ = 0; expert_ < s_.num_experts; ++expert_) {
            inner_ = fmt::format("{}{}.", kExperts, expert_);
            mlp(s_.moe_intermediate_size, Cut::expert, Cut::expert);
        }
        expert_ = -1;
        inner_ = kSharedExperts;
        if (s_.n_shared_experts > 0)
            mlp(s_.n_shared_experts * s_.moe_intermediate_size, Cut::column, Cut::row);
        inner_.clear();
    }

    void norm(Role role, std::int64_t size) { add(role, {size}, Cut::replicate); }

    // A bias is cut like its weight's rows, and whole where the columns are cut.
    void add(Role role, Shape shape, Cut cut, std::int64_t heads = 0, bool bias = false) {
        const Module& module = module_of(role);
        const std::string name = fmt::format("{}{}{}{}", prefix_, module.after, inner_, module.name);
        const auto layer = static_cast<int>(layer_);
        const auto head_count = static_cast<int>(heads);
        const std::int64_t rows = shape[0];
        specs_.push_back({name + ".weight", std::move(shape), cut, head_count, role, false, layer, expert_});
        if (!bias) return;
        const bool cut_too = cut == Cut::column;
        specs_.push_back({name + ".bias",
                          {rows},
                          cut_too ? cut : Cut::replicate,
                          cut_too ? head_count : 0,
                          role,
                          true,
                          layer,
                          expert_});
    }

    const DecoderSizes& s_;
    std::int64_t layer_ = -1, expert_ = -1;
    std::string prefix_, inner_;
    std::vector<ParameterSpec> specs_;
};

// "q_proj" of model.layers.0.self_attn.q_proj.weight
std::string_view module_name(std::string_view name) {
    const std::size_t last = name.rfind('.');
    if (last == std::string_view::npos) return {};
    const std::size_t before = name.rfind('.', last - 1);
    return name.substr(before + 1, last - before - 1);  // npos + 1 is 0
}

// N of "experts.N." in a name, where `list` is "experts."; -1: there is none.
template <typename Number>
Number number_in(std::string_view name, std::string_view list) {
    std::size_t at = name.find(list);
    while (at != std::string_view::npos && at > 0 && name[at - 1] != '.') at = name.find(list, at + 1);
    if (at == std::string_view::npos) return -1;
    const char* const begin = name.data() + at + list.size();
    const char* const end = name.data() + name.size();
    Number number = -1;
    const auto [stop, error] = std::from_chars(begin, end, number);
    return error == std::errc() && stop != end && *stop == '.' && number >= 0 ? number : -1;
}

}  // namespace

Initial ParameterSpec::initial() const {
    if (bias) return Initial::zero;
    if (shape.size() == 1) return Initial::one;
    return role == Role::o || role == Role::down ? Initial::residual : Initial::normal;
}

std::vector<ParameterSpec> parameter_specs(const DecoderSizes& sizes) {
    return Table(sizes).build();
}

ParameterSpec named_parameter(std::string name, Shape shape, Cut cut, int heads) {
    ParameterSpec spec{std::move(name), std::move(shape), cut, heads};
    spec.layer = number_in<int>(spec.name, kLayers);
    spec.bias = spec.name.ends_with(".bias");
    if (!spec.bias && !spec.name.ends_with(".weight")) return spec;  // a scale's, or whatever else it may be
    spec.expert = number_in<std::int64_t>(spec.name, kExperts);
    const std::string_view module = module_name(spec.name);
    for (const Module& known : kModules) {
        if (known.name == module) spec.role = known.role;
    }
    return spec;
}

}  // namespace tandem::model
