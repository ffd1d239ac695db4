// What a sync holds in memory beside the shards, before any session exists: for the prediction of a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/model/model_config.h"
#include "trainer/config.h"

namespace tandem::trainer {

// Most of what the measurement of the speed of light copies a side and rank.
constexpr std::size_t kSpeedOfLightBytes = std::size_t{64} << 20;

// Bytes by tag on rank 0, which holds the staging: `depth` slots of a bucket, as the session will choose
// them.
std::map<std::string, std::int64_t> sync_memory(const RunConfig& config, const model::ModelConfig& model,
                                                std::size_t bucket_bytes, int depth);

}  // namespace tandem::trainer
