// Models by name or from a file, for benches and plans: real shapes, synthetic weights, no download.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/model/parameters.h"

namespace tandem::sync {

std::vector<std::string> shape_names();  // dense ones and mixtures of experts
// A dense model. Throws InvalidArgument listing the names.
model::ModelConfig model_by_name(const std::string& name);

struct ModelShapes {
    std::vector<model::ParameterSpec> tensors;
    std::optional<model::DecoderSizes> sizes;  // nothing where the tensors are all that is known
};

// One of shape_names(), or a JSON file: config.json's keys, or {"tensors": [{"name", "shape", "parallel":
// "replicate" | "column" | "row" | "expert" | "vocabulary", "heads"}]}. Throws ConfigError naming file and key, and
// InvalidArgument listing the names for what is neither.
ModelShapes model_shapes(const std::string& name_or_file);
ModelShapes read_model_shapes(const std::string& json_text, const std::string& file);
std::vector<model::ParameterSpec> model_tensors(const std::string& name_or_file);  // of model_shapes

}  // namespace tandem::sync
