// Models by name, for benches: real shapes, synthetic weights, no download.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

std::vector<std::string> shape_names();
// Throws InvalidArgument listing the names.
model::ModelConfig model_by_name(const std::string& name);
std::vector<engine::TensorInfo> tensors_of(const model::ModelConfig& config, DType dtype);

}  // namespace tandem::sync
