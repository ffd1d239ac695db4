#include "trainer/loss/advantages.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace tandem::trainer {
namespace {

constexpr double kGroupEpsilon = 1e-6;
constexpr double kWhitenEpsilon = 1e-8;

struct Moments {
    double mean = 0;
    double variance = 0;  // unbiased
};

Moments moments(std::span<const float> values) {
    const auto count = static_cast<double>(values.size());
    Moments result;
    for (const float value : values) result.mean += value;
    result.mean /= count;
    for (const float value : values) result.variance += (value - result.mean) * (value - result.mean);
    result.variance = values.size() > 1 ? result.variance / (count - 1) : 0;
    return result;
}

// out = of(reward, moments of its group)
template <typename Function>
std::vector<float> by_group(std::span<const float> rewards, std::int64_t group_size, const Function& of) {
    require(group_size > 0 && rewards.size() % static_cast<std::size_t>(group_size) == 0,
            "{} rewards are not whole groups of {}", rewards.size(), group_size);
    std::vector<float> result(rewards.size(), 0.0f);
    const auto size = static_cast<std::size_t>(group_size);
    for (std::size_t begin = 0; begin < rewards.size(); begin += size) {
        const auto group = rewards.subspan(begin, size);
        // Tested by value: a mean of equal numbers may round, and 1e-6 would then blow the rounding up.
        const auto [low, high] = std::minmax_element(group.begin(), group.end());
        if (*low == *high) continue;
        const Moments m = moments(group);
        for (std::size_t i = 0; i < size; ++i) result[begin + i] = static_cast<float>(of(group[i], m));
    }
    return result;
}

}  // namespace

std::vector<float> group_advantages(std::span<const float> rewards, std::int64_t group_size) {
    return by_group(rewards, group_size, [](float reward, const Moments& group) {
        return (reward - group.mean) / (std::sqrt(group.variance) + kGroupEpsilon);
    });
}

std::vector<float> centered_rewards(std::span<const float> rewards, std::int64_t group_size) {
    return by_group(rewards, group_size,
                    [](float reward, const Moments& group) { return reward - group.mean; });
}

std::vector<float> leave_one_out(std::span<const float> rewards, std::int64_t group_size) {
    const auto n = static_cast<double>(group_size);
    return by_group(rewards, group_size,
                    [&](float reward, const Moments& group) { return (reward - group.mean) * n / (n - 1); });
}

Gae generalised_advantages(std::span<const float> rewards, std::span<const float> values, double gamma,
                           double lambda) {
    require(rewards.size() == values.size(), "{} rewards with {} values", rewards.size(), values.size());
    Gae result{std::vector<float>(rewards.size()), std::vector<float>(rewards.size())};
    double advantage = 0;
    double next_value = 0;
    for (std::size_t t = rewards.size(); t-- > 0;) {
        const auto value = static_cast<double>(values[t]);
        const double delta = static_cast<double>(rewards[t]) + gamma * next_value - value;
        advantage = delta + gamma * lambda * advantage;
        result.advantages[t] = static_cast<float>(advantage);
        result.returns[t] = static_cast<float>(advantage + value);
        next_value = value;
    }
    return result;
}

std::vector<float> discounted_returns(std::span<const float> rewards, double gamma) {
    std::vector<float> result(rewards.size());
    double sum = 0;
    for (std::size_t t = rewards.size(); t-- > 0;) {
        sum = static_cast<double>(rewards[t]) + gamma * sum;
        result[t] = static_cast<float>(sum);
    }
    return result;
}

void whiten(std::span<float> values) {
    if (values.empty()) return;
    const Moments m = moments(values);
    const double scale = 1 / std::sqrt(m.variance + kWhitenEpsilon);
    for (float& value : values) value = static_cast<float>((value - m.mean) * scale);
}

}  // namespace tandem::trainer
