// Rotary embedding in config.json: transformers 4 keeps `rope_theta` and `rope_scaling`, transformers 5 one
// object `rope_parameters`. Only for the .cpp files here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/model/config_reader.h"
#include "common/model/model_config.h"

namespace tandem::model {

// Fills rope_theta and rope_scaling; needs max_position_embeddings. Throws ConfigError: a type that we do not
// compute, keys that it needs.
void read_rope(const ConfigReader& reader, ModelConfig& config);
// In transformers 4's keys, which transformers 5 reads too.
void write_rope(const ModelConfig& config, nlohmann::ordered_json& out);
void validate_rope(const ModelConfig& config, const std::string& file);

}  // namespace tandem::model
