#include "trainer/loss/advantages.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace tandem::trainer {
namespace {

constexpr double kEpsilon = 1e-6;

void normalise(std::span<const float> rewards, std::span<float> advantages) {
    // Tested by value: a mean of equal numbers may round, and 1e-6 would then blow the rounding up.
    const auto [low, high] = std::minmax_element(rewards.begin(), rewards.end());
    if (*low == *high) return;
    const auto count = static_cast<double>(rewards.size());
    double mean = 0;
    for (const float reward : rewards) mean += reward;
    mean /= count;
    double squares = 0;
    for (const float reward : rewards) squares += (reward - mean) * (reward - mean);
    const double deviation = std::sqrt(squares / (count - 1));
    for (std::size_t i = 0; i < rewards.size(); ++i) {
        advantages[i] = static_cast<float>((rewards[i] - mean) / (deviation + kEpsilon));
    }
}

}  // namespace

std::vector<float> group_advantages(std::span<const float> rewards, std::int64_t group_size) {
    require(group_size > 0 && rewards.size() % static_cast<std::size_t>(group_size) == 0,
            "{} rewards are not whole groups of {}", rewards.size(), group_size);
    std::vector<float> advantages(rewards.size(), 0.0f);
    const auto size = static_cast<std::size_t>(group_size);
    for (std::size_t begin = 0; begin < rewards.size(); begin += size) {
        normalise(rewards.subspan(begin, size), std::span(advantages).subspan(begin, size));
    }
    return advantages;
}

}  // namespace tandem::trainer
