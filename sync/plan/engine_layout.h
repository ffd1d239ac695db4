// The tensors of a tensor-parallel, expert-parallel engine: for each rank, fused and sliced as SGLang and
// vLLM do, in parts of the Hugging Face tensors.
#pragma once

#include <string>
#include <vector>

#include "common/model/parameters.h"
#include "sync/plan/layout.h"

namespace tandem::sync {

// Rows [start, start + size) of a vocabulary: what one of `tp` ranks holds of it. As vLLM and SGLang do, the vocabulary
// is padded to a multiple of 64 (of 64·tp where tp does not divide that) and cut evenly; the last ranks then hold fewer
// rows that exist, or none. The rows that pad a rank's range are the engine's own: zeros, which no trainer has.
struct VocabularyRows {
    std::int64_t start = 0;
    std::int64_t size = 0;
    std::int64_t padding = 0;  // rows after them
};
VocabularyRows vocabulary_rows(std::int64_t vocabulary, int tp, int rank);

// There are R = max(tp, ep) engine ranks, which both divide. Rank r is number r % tp of those that cut
// attention and dense layers, and number r / (R/ep) of those that divide the experts: number n holds experts
// [n·E/ep, (n+1)·E/ep). Where R > ep, R/ep neighbours hold the same experts and cut each of them.
struct EngineParallel {
    int tp = 1;
    int ep = 1;
    bool fused = true;  // qkv_proj, gate_up_proj, experts' w13 [experts, 2·ffn, hidden] and w2
};

// [rank]: its tensors in the model's order, a fused one where its first member stands; of a vocabulary the rows that
// exist. dtype: of every tensor. Throws InvalidArgument naming the tensor whose dim, heads or experts do not divide.
EngineLayout engine_layout(const std::vector<model::ParameterSpec>& model, const EngineParallel& parallel,
                           DType dtype);

}  // namespace tandem::sync
