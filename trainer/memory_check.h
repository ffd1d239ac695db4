// Checks of [memory] against the machine: the folder of the tier below memory is there, can be written and
// has room for what the ranks will park.
#pragma once

#include "common/model/model_config.h"
#include "trainer/config.h"

namespace tandem::trainer {

// Throws ConfigError.
void check_memory(const RunConfig& config, const config::Schema& schema, const model::ModelConfig& model);

}  // namespace tandem::trainer
