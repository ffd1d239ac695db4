#include "trainer/initial_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::trainer {
namespace {

// splitmix64's finaliser: a bijection that spreads every input bit.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::uint64_t hash(const std::string& text) {  // FNV-1a
    std::uint64_t value = 0xcbf29ce484222325u;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return value;
}

double uniform(std::uint64_t bits) {  // in (0, 1)
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

// Box-Muller on two hashes of the element's index.
double standard_normal(std::uint64_t stream, std::uint64_t index) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(mix(stream + 2 * index))));
    return radius * std::cos(2.0 * std::numbers::pi * uniform(mix(stream + 2 * index + 1)));
}

bool adds_to_residual(const std::string& name) {
    return name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
}

}  // namespace

void fill_initial_weights(const InitialWeights& init, const std::string& name, const Shape& shape,
                          std::int64_t first, std::span<float> out) {
    if (shape.size() == 1) {
        std::fill(out.begin(), out.end(), 1.0f);
        return;
    }
    const double residual = adds_to_residual(name) ? std::sqrt(2.0 * static_cast<double>(init.layers)) : 1.0;
    const double std = init.std / residual;
    const std::uint64_t stream = mix(mix(init.seed) ^ hash(name));
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>(std * standard_normal(stream, static_cast<std::uint64_t>(first) + i));
    }
}

}  // namespace tandem::trainer
