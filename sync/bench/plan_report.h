// `tandem-sync plan`: what a reshard plan from a trainer's layout to an engine's costs and how it spreads the
// work. Pure: no rank is started, no memory is needed for the weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sync/bench/trainer_mesh.h"
#include "sync/plan/engine_layout.h"

namespace tandem::sync {

struct PlanReportOptions {
    std::string shapes = "Qwen3-0.6B";  // a name or a file (shapes.h)
    TrainerMesh mesh{4};                // without names: of the trainer's ranks, row-major
    std::string placements;  // one for each axis; empty: R on all axes but the last, S(0) on that; or by name
    // ep, fsdp: each expert lies on fsdp ranks, sharded along dim 0; what is left of the mesh, or of its stage, holds replicas.
    // Empty: experts lie as all other tensors do.
    std::vector<int> expert_mesh;
    EngineParallel engine;
    DType source_dtype = DType::bfloat16;
    DType engine_dtype = DType::bfloat16;
    std::size_t min_split_bytes = 64u << 10;

    void validate() const;  // throws ConfigError naming the option
    int world_size() const;
};

// Placements of a dim that a tensor lacks cut its dim 0.
SourceLayout trainer_layout(const std::vector<model::ParameterSpec>& model, const PlanReportOptions& options);

// {shapes, tensors, parameters, mesh, placements, expert_mesh, engine_tp, engine_ep, fused, source_dtype,
// engine_dtype, source_ranks, engine_ranks, plan_ms, expand_ms (the moves of engine rank 0 written out),
// moves, patterns, bytes, bytes_from {min, max, mean}, bytes_to {min, max, mean}, balance (max / mean of
// bytes_from)}.
nlohmann::json plan_report(const PlanReportOptions& options);
std::string plan_table(const nlohmann::json& report);

}  // namespace tandem::sync
