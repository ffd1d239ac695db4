// Fresh weights: a function of seed, parameter name and element index alone, so that every mesh starts from
// the same model and each rank fills only its own rows.
#pragma once

#include <cstdint>
#include <span>

#include "common/dtensor/layout.h"
#include "common/model/parameters.h"

namespace tandem::trainer {

struct InitialWeights {
    std::uint64_t seed = 0;
    float std = 0.02f;
    std::int64_t layers = 1;
};

// Elements [first, first + out.size()) of a parameter, row-major, as spec.initial() says: normal is with std, residual
// with std / sqrt(2 layers).
void fill_initial_weights(const InitialWeights& init, const model::ParameterSpec& spec, std::int64_t first,
                          std::span<float> out);
// The elements that a rank holds: whole rows, or a piece of each.
void fill_initial_weights(const InitialWeights& init, const model::ParameterSpec& spec,
                          const LocalLayout& layout, std::span<float> out);

}  // namespace tandem::trainer
