// What a configured run will make its ranks hold at once: the first batches are drawn and packed as the loop
// draws and packs them, with answers as long as they may become.
#pragma once

#include "trainer/config/config.h"
#include "trainer/data/task.h"
#include "trainer/memory/predict.h"

namespace tandem::trainer::memory {

RankShape rank_shape(const RunConfig& config);
Workload workload_of(const RunConfig& config, const Task& task, const PolicyOptions& options);

}  // namespace tandem::trainer::memory
