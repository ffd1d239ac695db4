#include "trainer/loop/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem::trainer {

using nlohmann::ordered_json;

ordered_json metrics_of(const RolloutStatistics& figures) {
    return {{"reward", figures.reward_mean},
            {"reward_std", figures.reward_std},
            {"reward_min", figures.reward_min},
            {"reward_max", figures.reward_max},
            {"groups_without_signal", figures.without_signal},
            {"response_length_mean", figures.length_mean},
            {"response_length_max", figures.length_max},
            {"truncated_fraction", figures.truncated},
            {"staleness", figures.staleness}};
}

ordered_json metrics_of(const HeldOutResult& result, std::int64_t samples) {
    ordered_json values;
    if (result.sampled) {
        values["reward"] = result.sampled->reward;
        values["pass_at_1"] = result.sampled->pass_at_1;
        values["pass_at_k"] = result.sampled->pass_at_k;
        values["k"] = samples;
        values["length_mean"] = result.sampled->length_mean;
        values["truncated_fraction"] = result.sampled->truncated;
    }
    values["greedy"] = result.greedy.reward;
    values["greedy_pass_at_1"] = result.greedy.pass_at_1;
    values["greedy_length_mean"] = result.greedy.length_mean;
    values["greedy_truncated_fraction"] = result.greedy.truncated;
    return values;
}

std::vector<ordered_json> readable_samples(const Task& task, const Rollout& rollout, std::int64_t count) {
    std::vector<ordered_json> result;
    const std::size_t all = rollout.ids.size();
    const std::size_t kept = std::min(all, static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < kept; ++k) {
        const std::size_t i = k * all / kept;
        const Completion& completion = rollout.completions[i];
        ordered_json line{{"prompt", task.text(rollout.prompts[i])},
                          {"completion", task.text(completion.tokens)},
                          {"reward", rollout.rewards[i]},
                          {"tokens", completion.tokens.size()},
                          {"truncated", completion.truncated},
                          {"weight_version", completion.weight_version}};
        if (!rollout.expected[i].empty()) line["expected"] = rollout.expected[i];
        result.push_back(std::move(line));
    }
    return result;
}

}  // namespace tandem::trainer
