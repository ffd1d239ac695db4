// Which tensors of a checkpoint vLLM can be given without the others. It loads layer by layer, and a layer of its own is
// made of several tensors (query, key and value; gate and up; all experts): one that is given a part of them is broken,
// one that is given nothing keeps what it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

// The tensors that `only` says yes to; empty: all. Throws BadInput naming two tensors that it parts and that only go
// together: those of one attention, one feed-forward block, one norm.
std::vector<TensorInfo> whole_layers(std::vector<TensorInfo> tensors,
                                     const std::function<bool(const std::string& name)>& only);

}  // namespace tandem::engine
