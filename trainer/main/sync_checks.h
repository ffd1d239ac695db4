// Which keys under [sync], [memory] and [run] go together: what the trainer, which knows no sync, cannot say.
#pragma once

#include "trainer/config/config.h"

namespace tandem::trainer {

// Whether the weights of trainer ranks on a GPU stay there on their way to the engine.
bool syncs_from_gpu(const RunConfig& config);

// Both throw ConfigError. The second one looks at this machine's GPUs.
void check_sync(const RunConfig& config, const config::Schema& schema);
void check_sync_devices(const RunConfig& config, const config::Schema& schema);

}  // namespace tandem::trainer
