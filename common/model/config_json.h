// config.json once it is parsed. Only for the .cpp files here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/model/model_config.h"

namespace tandem::model {

// What `parsed` says, with transformers' defaults for what it does not. Throws ConfigError naming `file` and key.
ModelConfig config_of(const nlohmann::json& parsed, const std::string& file);

}  // namespace tandem::model
