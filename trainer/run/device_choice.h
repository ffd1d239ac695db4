// The GPUs of a host that ranks and engine take when run.device = "cuda".
#pragma once

#include <cstdint>

#include "common/device/device.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

// Ranks of a host take its GPUs in turn, and share them where there are fewer; the engine takes the GPU after
// the last rank's. With sync.transport = nccl the engine that a run starts has a GPU for itself: the last one
// if the ranks of its host would otherwise take all.
Device device_of_rank(const RunConfig& config, int rank, int local_rank);
Device device_of_engine(const RunConfig& config);

bool engine_has_own_gpu(const RunConfig& config);

// GPUs of this host. Throws DeviceUnavailable, saying why, when there is none.
std::int64_t gpu_count();

// Throws ConfigError, naming run.device, when there is no GPU that can be used.
void check_device(const RunConfig& config, const config::Schema& schema);

}  // namespace tandem::trainer
