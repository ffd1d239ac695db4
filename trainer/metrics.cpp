#include "trainer/metrics.h"

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

}  // namespace tandem::trainer
