// Which gradients differ between the ranks of the tp axis although the parameter lies on all of them, so that their sum is
// the gradient: by role (the table of README.md).
#pragma once

#include <cstdint>

#include "common/model/parameters.h"

namespace tandem::trainer {

enum class GradientSum : std::uint8_t {
    none,    // the ranks' own parts, or the same value on each
    tensor,  // over the tp axis
    copies   // over the ranks that hold the same head of keys and values
};

GradientSum gradient_sum(const model::ParameterSpec& spec, int tp, bool sequence_parallel);

}  // namespace tandem::trainer
