// Checks across keys, and of keys against the machine. Each throws ConfigError naming file:line and key.
#pragma once

#include "common/model/model_config.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

// Everything that can be known to be wrong before a process is started. environment_world_size: WORLD_SIZE
// when a launcher set it, else 0.
void check(const RunConfig& config, const config::Schema& schema, int environment_world_size);

// check()'s part that reads neither model nor data.
void check_settings(const RunConfig& config, const config::Schema& schema, int environment_world_size);

// check()'s part about [memory]: the folder of the tier below memory is there, can be written and has space
// for the state that the ranks will offload.
void check_memory(const RunConfig& config, const config::Schema& schema, const model::ModelConfig& model);

}  // namespace tandem::trainer
