// Fresh weights: a function of seed, parameter name and element index alone, so that every mesh starts from
// the same model and each rank fills only its own rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/model/model_config.h"
#include "common/tensor/shape.h"

namespace tandem::trainer {

struct InitialWeights {
    std::uint64_t seed = 0;
    float std = 0.02f;
    std::int64_t layers = 1;
};

// Elements [first, first + out.size()) of a parameter, row-major: 1 for norms, 0 for biases, else normal with
// std, and with std / sqrt(2 layers) for o_proj and down_proj, which add to the residual stream.
void fill_initial_weights(const InitialWeights& init, const std::string& name, const Shape& shape,
                          std::int64_t first, std::span<float> out);

}  // namespace tandem::trainer
