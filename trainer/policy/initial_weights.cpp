#include "trainer/policy/initial_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "common/mix.h"

namespace tandem::trainer {
namespace {

std::uint64_t hash(const std::string& text) {  // FNV-1a
    std::uint64_t value = 0xcbf29ce484222325u;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return value;
}

float uniform(std::uint32_t bits) {  // in (0, 1]
    return (static_cast<float>(bits) + 0.5f) * 0x1.0p-32f;
}

// Box-Muller: elements 2 i and 2 i + 1 of a parameter from one hash.
std::array<float, 2> normal_pair(std::uint64_t stream, std::uint64_t pair) {
    const std::uint64_t bits = mix(stream + pair);
    const float radius = std::sqrt(-2.0f * std::log(uniform(static_cast<std::uint32_t>(bits >> 32))));
    const float angle = 2.0f * std::numbers::pi_v<float> * uniform(static_cast<std::uint32_t>(bits));
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void fill_initial_weights(const InitialWeights& init, const model::ParameterSpec& spec, std::int64_t first,
                          std::span<float> out) {
    using model::Initial;
    const Initial initial = spec.initial();
    if (initial == Initial::zero || initial == Initial::one) {
        std::fill(out.begin(), out.end(), initial == Initial::zero ? 0.0f : 1.0f);
        return;
    }
    const float residual =
        initial == Initial::residual ? std::sqrt(2.0f * static_cast<float>(init.layers)) : 1.0f;
    const float std = init.std / residual;
    const std::uint64_t stream = mix(mix(init.seed) ^ hash(spec.name));
    const auto begin = static_cast<std::uint64_t>(first);
    for (std::size_t i = 0; i < out.size();) {
        const std::uint64_t element = begin + i;
        const std::array<float, 2> pair = normal_pair(stream, element / 2);
        if (element % 2 == 0) {
            out[i++] = std * pair[0];
            if (i == out.size()) break;
        }
        out[i++] = std * pair[1];
    }
}

void fill_initial_weights(const InitialWeights& init, const model::ParameterSpec& spec,
                          const LocalLayout& layout, std::span<float> out) {
    if (out.empty()) return;
    const std::int64_t row = numel(spec.shape) / spec.shape[0], held = numel(layout.shape) / layout.shape[0];
    const std::int64_t first = layout.offsets[0] * row;
    if (held == row) return fill_initial_weights(init, spec, first, out);
    for (std::int64_t i = 0; i < layout.shape[0]; ++i) {
        fill_initial_weights(init, spec, first + i * row + layout.offsets[1],
                             out.subspan(static_cast<std::size_t>(i * held), static_cast<std::size_t>(held)));
    }
}

}  // namespace tandem::trainer
