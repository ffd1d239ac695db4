// transformers computes these in fp32; we in fp64, rounded once at the end.
#include "common/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::model {
namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;

double llama3(const RopeScaling& s, double frequency) {
    const auto original = static_cast<double>(s.original_max_position_embeddings);
    const double rotations = original * frequency / kTurn;  // in the original context: original / wavelength
    if (rotations < s.low_freq_factor) return frequency / s.factor;
    if (rotations > s.high_freq_factor) return frequency;
    const double smooth = (rotations - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071), section 3.2, with transformers' rounding of the ramp's ends.
struct YarnRamp {
    YarnRamp(const RopeScaling& s, double theta, std::int64_t head_dim) {
        const auto dim = static_cast<double>(head_dim);
        const auto original = static_cast<double>(s.original_max_position_embeddings);
        const auto dim_that_turns = [&](double rotations) {
            return dim * std::log(original / (rotations * kTurn)) / (2 * std::log(theta));
        };
        low = dim_that_turns(s.beta_fast);
        high = dim_that_turns(s.beta_slow);
        if (s.truncate) {
            low = std::floor(low);
            high = std::ceil(high);
        }
        low = std::max(low, 0.0);
        high = std::min(high, dim - 1);
        if (low == high) high += 0.001;
    }
    // 0: keep the frequency; 1: divide it by the factor
    double at(std::size_t i) const {
        return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    }
    double low, high;
};

double yarn_attention_factor(const RopeScaling& s) {
    if (s.attention_factor) return *s.attention_factor;
    const auto scale = [&](double mscale) {
        return s.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(s.factor) + 1.0;
    };
    const double mscale = s.mscale.value_or(0), all = s.mscale_all_dim.value_or(0);
    return mscale != 0 && all != 0 ? scale(mscale) / scale(all) : scale(1);
}

}  // namespace

std::string to_string(RopeScaling::Type type) {
    switch (type) {
        case RopeScaling::Type::standard:
            return "default";
        case RopeScaling::Type::linear:
            return "linear";
        case RopeScaling::Type::llama3:
            return "llama3";
        case RopeScaling::Type::yarn:
            return "yarn";
    }
    return "";
}

RopeFrequencies rope_frequencies(double theta, const RopeScaling& scaling, std::int64_t head_dim) {
    using Type = RopeScaling::Type;
    RopeFrequencies result;
    result.inverse.resize(static_cast<std::size_t>(head_dim / 2));
    std::optional<YarnRamp> ramp;
    if (scaling.type == Type::yarn) ramp.emplace(scaling, theta, head_dim);
    for (std::size_t i = 0; i < result.inverse.size(); ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
        double frequency = std::pow(theta, exponent);
        if (scaling.type == Type::linear) frequency /= scaling.factor;
        if (scaling.type == Type::llama3) frequency = llama3(scaling, frequency);
        if (ramp) {
            const double part = ramp->at(i);
            frequency = frequency / scaling.factor * part + frequency * (1 - part);
        }
        result.inverse[i] = static_cast<float>(frequency);
    }
    if (ramp) result.attention_factor = static_cast<float>(yarn_attention_factor(scaling));
    return result;
}

}  // namespace tandem::model
