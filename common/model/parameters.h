// The parameters of a model, told once: Hugging Face names and shapes, what each is for, how tensor parallelism cuts it
// and how it begins, in the one order that trainer, sync and engine all use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/model/model_config.h"
#include "common/tensor/shape.h"

namespace tandem::model {

inline constexpr const char* kEmbedding = "model.embed_tokens.weight";
inline constexpr const char* kHead = "lm_head.weight";

// What a parameter is for. A projection's bias has its weight's role.
enum class Role : std::uint8_t {
    other,  // of a checkpoint that names what we do not know
    embedding,
    norm,  // the last one
    head,
    // Of a layer.
    input_norm,
    q,
    k,
    v,
    q_norm,
    k_norm,
    o,
    post_norm,
    gate,
    up,
    down,
    // Latent attention.
    q_a,
    q_a_norm,
    q_b,
    kv_a,
    kv_a_norm,
    kv_b,
    // Which expert gets a token.
    router,
};
constexpr std::size_t kRoles = static_cast<std::size_t>(Role::router) + 1;

// How tensor parallelism cuts it, in the trainer and in engines.
enum class Cut : std::uint8_t {
    replicate,  // norms, routers, the biases of o and down: whole on every rank
    column,     // rows of the weight (dim 0): q, k, v, gate, up, and their biases
    row,        // columns of the weight (dim 1): o, down
    expert,     // belongs to the ranks that hold its expert, and may be cut among them
    vocabulary  // rows of the embedding or the head
};

enum class Initial : std::uint8_t {
    one,
    zero,
    normal,
    residual  // normal, and narrower by the square root of twice the layers: it adds to the residual stream
};

struct ParameterSpec {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       // global
    Cut cut = Cut::replicate;
    int heads =
        0;  // column: cut at multiples of shape[0] / heads, and replicated where there are fewer than ranks (k, v)
    Role role = Role::other;
    bool bias = false;
    int layer = -1;            // -1: embedding, final norm, head
    std::int64_t expert = -1;  // -1: of none

    Initial initial() const;
};

// model.embed_tokens.weight; then each layer: input_layernorm, q_proj, k_proj, v_proj, [q_norm, k_norm],
// o_proj, post_attention_layernorm, gate_proj, up_proj, down_proj, a projection's bias right after its
// weight; then model.norm.weight; then lm_head.weight when untied. A layer of experts has mlp.gate, then each expert's
// three, then the shared ones'; latent attention q_a_proj, q_a_layernorm, q_b_proj (or q_proj), kv_a_proj_with_mqa,
// kv_a_layernorm, kv_b_proj, o_proj.
std::vector<ParameterSpec> parameter_specs(const DecoderSizes& sizes);

// What a tensor's name alone says of it: role, bias, layer, expert; the rest as given.
ParameterSpec named_parameter(std::string name, Shape shape, Cut cut, int heads = 0);

}  // namespace tandem::model
