// Which device of its host a rank and the engine take when run.device = "cuda".
#pragma once

#include "common/device/device.h"
#include "trainer/config.h"

namespace tandem::trainer {

// Ranks of a host take its GPUs in turn, and share them where there are fewer; the engine takes the GPU after
// the last rank's.
Device device_of_rank(const RunConfig& config, int local_rank);
Device device_of_engine(const RunConfig& config);

// Throws ConfigError, naming run.device, when there is no GPU that can be used, or a key that a GPU does not
// know yet.
void check_device(const RunConfig& config, const config::Schema& schema);

}  // namespace tandem::trainer
