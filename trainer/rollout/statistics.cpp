#include "trainer/rollout/statistics.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace tandem::trainer {

RolloutStatistics statistics_of(const Rollout& rollout, std::int64_t group, std::int64_t version) {
    RolloutStatistics s;
    const std::size_t count = rollout.rewards.size();
    const auto size = static_cast<std::size_t>(group);
    require(count > 0 && count % size == 0, "{} samples do not fill groups of {}", count, group);
    const auto share = [](auto part, std::size_t whole) {
        return static_cast<double>(part) / static_cast<double>(whole);
    };
    double rewards = 0, squares = 0;
    std::int64_t tokens = 0, truncated = 0, age = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto reward = static_cast<double>(rollout.rewards[i]);
        rewards += reward;
        squares += reward * reward;
        const Completion& completion = rollout.completions[i];
        const auto length = static_cast<std::int64_t>(completion.tokens.size());
        tokens += length;
        s.length_max = std::max(s.length_max, length);
        truncated += completion.truncated ? 1 : 0;
        age += version - completion.weight_version;
    }
    s.reward_mean = share(rewards, count);
    s.reward_std = std::sqrt(std::max(0.0, share(squares, count) - s.reward_mean * s.reward_mean));
    const auto [least, most] = std::minmax_element(rollout.rewards.begin(), rollout.rewards.end());
    s.reward_min = static_cast<double>(*least);
    s.reward_max = static_cast<double>(*most);
    s.length_mean = share(tokens, count);
    s.truncated = share(truncated, count);
    s.staleness = share(age, count);
    std::int64_t flat = 0;
    for (auto first = rollout.rewards.begin(); first != rollout.rewards.end(); first += group)
        flat += std::all_of(first, first + group, [&](float reward) { return reward == *first; }) ? 1 : 0;
    s.without_signal = share(flat, count / size);
    return s;
}

double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k) {
    require(k >= 1 && k <= n && c >= 0 && c <= n, "pass@{} from {} of {} samples", k, c, n);
    double none = 1;  // that k samples drawn without replacement are all among the n - c
    for (std::int64_t i = 0; i < k; ++i)
        none *= std::max(0.0, static_cast<double>(n - c - i)) / static_cast<double>(n - i);
    return 1 - none;
}

}  // namespace tandem::trainer
