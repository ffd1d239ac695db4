// What a tensor-parallel, expert-parallel engine holds of a model: for each engine rank its tensors, fused
// and sliced as SGLang and vLLM do, in parts of the Hugging Face tensors.
#pragma once

#include <string>
#include <vector>

#include "sync/plan/layout.h"

namespace tandem::sync {

// How a Hugging Face tensor is cut over tp ranks.
enum class TensorParallel : std::uint8_t {
    replicate,  // norms, routers: whole on every rank
    column,     // rows of the weight (dim 0): q, k, v, gate, up; also the vocabulary
    row,        // columns of the weight (dim 1): o, down
    expert      // dim 0 counts nothing; the whole tensor belongs to one expert rank (name has ".experts.N.")
};

struct ModelTensor {
    std::string name;  // Hugging Face name
    Shape shape;
    TensorParallel parallel = TensorParallel::replicate;
    int heads = 0;  // column: cut at multiples of shape[0] / heads, and replicated where heads < tp (k, v)
};

struct EngineParallel {
    int tp = 1;
    int ep = 1;         // expert ranks; engine rank r holds experts [r·E/ep, (r+1)·E/ep) when ep > 1
    bool fused = true;  // qkv_proj, gate_up_proj, experts' w13 / w2
};

// max(tp, ep) engine ranks (each divides the larger). dtype: of every tensor. Throws InvalidArgument where
// a dim does not divide by tp.
EngineLayout engine_layout(const std::vector<ModelTensor>& model, const EngineParallel& parallel, DType dtype);

}  // namespace tandem::sync
