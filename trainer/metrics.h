// Figures as fields of metrics.jsonl. What the update tells is update.h's.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trainer/rollout/evaluation.h"
#include "trainer/rollout/statistics.h"

namespace tandem::trainer {

nlohmann::ordered_json metrics_of(const RolloutStatistics& figures);
// `samples`: how many of each prompt the sampled figures rest on. "reward" and "greedy" are mean rewards.
nlohmann::ordered_json metrics_of(const HeldOutResult& result, std::int64_t samples);

}  // namespace tandem::trainer
