// The tensors of an engine with eight-bit weights: the linear layers quantised, each with its scales beside
// it; embeddings, lm_head, norms and routers as they are.
#pragma once

#include <vector>

#include "sync/plan/engine_layout.h"

namespace tandem::sync {

// `plain`: an engine rank's tensors in its other dtype; `dtype`: float8_e4m3fn or int8. Throws
// InvalidArgument naming a slice that cuts through blocks of scales.
std::vector<engine::TensorInfo> quantize_linear(const std::vector<engine::TensorInfo>& plain,
                                                const std::vector<model::ParameterSpec>& model, DType dtype);

}  // namespace tandem::sync
