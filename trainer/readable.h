// A few rollouts as text, for people: lines of samples.jsonl.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trainer/rollout/rollout.h"

namespace tandem::trainer {

// At most `count` samples, evenly spread over the batch: prompt, completion (special tokens spelled out),
// expected answer where the task has one, reward, tokens, truncated.
std::vector<nlohmann::ordered_json> readable_samples(const Task& task, const Rollout& rollout,
                                                     std::int64_t count);

}  // namespace tandem::trainer
