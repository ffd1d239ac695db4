// A product of tiles (common/ops/cpu/attention/amx.h) as a function of arrays, from AMX and from plain C++.
#pragma once

#include <cstdint>

namespace tandem::testing {

// sum [16, 16] += a [16, 16 pairs] · b [16 pairs, 16].
using MultiplyTiles = void (*)(const std::uint32_t* a, const std::uint32_t* b, float* sum);

extern const MultiplyTiles kMultiplyByAmx;  // where runs_amx()
extern const MultiplyTiles kMultiplyEmulated;

}  // namespace tandem::testing
