#include "common/ops/cpu/weight_classes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::cpu {
namespace {

// Positive floats are ordered as their bits are: 64 classes from a power of two to the next, the last for what is
// below 2^-64 of the largest. Few tokens are one class.
constexpr std::int32_t kOne = 0x3f800000;
constexpr int kClassBits = 17;
constexpr std::size_t kClasses = 4096, kFew = 1024;

}  // namespace

double mass_of(std::span<const Weighted> tokens) {
    double mass = 0;
    for (const Weighted& token : tokens) mass += static_cast<double>(token.weight);
    return mass;
}

AtMass find_mass(std::span<Weighted> tokens, double target) {
    std::size_t begin = 0, end = tokens.size();
    double before = 0;
    while (end - begin > 1) {
        const std::size_t middle = begin + (end - begin) / 2;
        const auto at = [&](std::size_t rank) { return tokens.begin() + static_cast<std::ptrdiff_t>(rank); };
        std::nth_element(at(begin), at(middle), at(end), likelier);
        const double mass = mass_of(tokens.subspan(begin, middle - begin));
        if (before + mass > target) {
            end = middle;
        } else {
            before += mass;
            begin = middle;
        }
    }
    return {begin, before};
}

void WeightClasses::count(std::span<const float> weights, float least) {
    weights_ = weights;
    least_ = std::max(least, std::numeric_limits<float>::min());
    // What is in no class is counted behind the last one, without a branch, which nobody could predict.
    constexpr std::size_t kBehind = 8;
    const std::size_t classes = weights.size() <= kFew ? 1 : kClasses;
    tokens_.assign(classes + kBehind, 0);
    masses_.assign(classes + kBehind, 0);
    const std::int32_t last = static_cast<std::int32_t>(classes) - 1;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const std::int32_t below = (kOne - std::bit_cast<std::int32_t>(weights[i])) >> kClassBits;
        const std::size_t out = -static_cast<std::size_t>(weights[i] < least_);  // all bits, or none
        const std::size_t index =
            (static_cast<std::size_t>(std::clamp(below, 0, last)) & ~out) | ((classes + i % kBehind) & out);
        ++tokens_[index];
        masses_[index] += static_cast<double>(weights[i]);
    }
    tokens_.resize(classes);
    masses_.resize(classes);
}

float WeightClasses::least(std::size_t index) const {
    if (index + 1 >= size()) return least_;
    const std::int32_t bits = kOne - (static_cast<std::int32_t>(index + 1) << kClassBits) + 1;
    return std::max(least_, std::bit_cast<float>(bits));
}

void WeightClasses::collect(std::size_t index, std::vector<Weighted>& tokens) const {
    thread_local std::vector<std::int32_t> found;
    found.resize(weights_.size());
    const float below = index == 0 ? 2.0f : least(index - 1);
    const std::size_t count = detail::softmax_kernels().tokens_between(
        weights_.data(), static_cast<std::int64_t>(weights_.size()), least(index), below, found.data());
    tokens.clear();
    for (const std::int32_t token : std::span(found).first(count))
        tokens.push_back({weights_[static_cast<std::size_t>(token)], token});
}

}  // namespace tandem::ops::cpu
