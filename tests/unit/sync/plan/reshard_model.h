// A model of every kind of tensor, small enough for an oracle that looks at every element, and trainers that
// hold it.
#pragma once

#include <fmt/core.h>

#include "sync/plan/engine_layout.h"
#include "sync/plan/reshard.h"

namespace tandem::sync {

inline std::vector<model::ParameterSpec> small_model() {
    std::vector<model::ParameterSpec> model{
        {"model.embed_tokens.weight", {12, 8}, model::Cut::column, 0},
        {"model.layers.0.input_layernorm.weight", {8}, model::Cut::replicate, 0},
        {"model.layers.0.self_attn.q_proj.weight", {8, 8}, model::Cut::column, 4},
        {"model.layers.0.self_attn.q_proj.bias", {8}, model::Cut::column, 4},
        {"model.layers.0.self_attn.k_proj.weight", {4, 8}, model::Cut::column, 2},
        {"model.layers.0.self_attn.k_proj.bias", {4}, model::Cut::column, 2},
        {"model.layers.0.self_attn.v_proj.weight", {4, 8}, model::Cut::column, 2},
        {"model.layers.0.self_attn.v_proj.bias", {4}, model::Cut::column, 2},
        {"model.layers.0.self_attn.o_proj.weight", {8, 8}, model::Cut::row, 0},
        {"model.layers.0.self_attn.o_proj.bias", {8}, model::Cut::replicate, 0},
        {"model.layers.0.mlp.gate_proj.weight", {12, 8}, model::Cut::column, 0},
        {"model.layers.0.mlp.gate_proj.bias", {12}, model::Cut::column, 0},
        {"model.layers.0.mlp.up_proj.weight", {12, 8}, model::Cut::column, 0},
        {"model.layers.0.mlp.up_proj.bias", {12}, model::Cut::column, 0},
        {"model.layers.0.mlp.down_proj.weight", {8, 12}, model::Cut::row, 0},
        {"model.layers.0.mlp.down_proj.bias", {8}, model::Cut::replicate, 0},
        {"model.layers.1.mlp.gate.weight", {4, 8}, model::Cut::replicate, 0},
    };
    for (int expert = 0; expert < 4; ++expert) {
        const std::string prefix = fmt::format("model.layers.1.mlp.experts.{}.", expert);
        model.push_back({prefix + "gate_proj.weight", {4, 8}, model::Cut::expert, 0});
        model.push_back({prefix + "up_proj.weight", {4, 8}, model::Cut::expert, 0});
        model.push_back({prefix + "down_proj.weight", {8, 4}, model::Cut::expert, 0});
    }
    for (model::ParameterSpec& one : model)
        one = model::named_parameter(one.name, one.shape, one.cut, one.heads);
    return model;
}

// All tensors on one mesh of ranks 0, 1, …; dims that a tensor lacks become dim 0.
inline SourceLayout on_mesh(const std::vector<model::ParameterSpec>& model, const std::vector<int>& mesh,
                            const Placements& placements, DType dtype = DType::float32) {
    SourceLayout source;
    for (const int n : mesh) source.world_size *= n;
    SourceGroup group{{}, mesh, placements};
    for (int rank = 0; rank < source.world_size; ++rank) group.ranks.push_back(rank);
    source.groups.push_back(group);
    for (Placement& placement : group.placements) placement.dim = 0;
    source.groups.push_back(group);
    for (const model::ParameterSpec& tensor : model) {
        source.tensors.push_back({tensor.name, tensor.shape, dtype, {tensor.shape.size() < 2 ? 1 : 0}});
    }
    return source;
}

}  // namespace tandem::sync
