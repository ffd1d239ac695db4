// Pairs of bfloat16 as the kernels' tests write them.
#pragma once

#include <cstdint>

#include "common/ops/shared/bits.h"

namespace tandem::testing {

inline std::uint32_t pair_of(float first, float second) {
    return ops::shared::bfloat16_bits(first) | std::uint32_t{ops::shared::bfloat16_bits(second)} << 16;
}

}  // namespace tandem::testing
