// Random numbers by counter, not by state: the value of (seed, stream, position) is always the same, whatever
// else was drawn before or is running beside it.
#pragma once

#include <cstdint>

#include "common/ops/shared/random.h"

namespace tandem::engine {

// Uniform in [0, 1) with 53 random bits.
inline double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
    const ops::shared::Random128 bits = ops::shared::philox(position, stream, seed);
    const std::uint64_t word = (std::uint64_t{bits.words[0]} << 32) | bits.words[1];
    return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace tandem::engine
