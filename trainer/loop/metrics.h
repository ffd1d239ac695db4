// Records of rollouts and evaluations: fields of metrics.jsonl, lines of samples.jsonl. The fields of an
// update are in update.h.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trainer/rollout/evaluation.h"
#include "trainer/rollout/rollout.h"
#include "trainer/rollout/statistics.h"

namespace tandem::trainer {

nlohmann::ordered_json metrics_of(const RolloutStatistics& figures);
// `samples`: how many of each prompt the sampled figures rest on. "reward" and "greedy" are mean rewards.
nlohmann::ordered_json metrics_of(const HeldOutResult& result, std::int64_t samples);

// At most `count` samples as text for people, evenly spread over the batch: prompt, completion (special
// tokens spelled out), expected answer where the task has one, reward, tokens, truncated.
std::vector<nlohmann::ordered_json> readable_samples(const Task& task, const Rollout& rollout,
                                                     std::int64_t count);

}  // namespace tandem::trainer
