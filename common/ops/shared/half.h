// float16 as bits: into it, and what it cannot hold. (Out of it: float_of_half in bits.h.)
#pragma once

#include <cstdint>

#include "common/ops/shared/bits.h"

namespace tandem::ops::shared {

// Round to nearest even; from 65520 on infinite; a NaN stays a (quiet) one.
TANDEM_HOST_DEVICE std::uint16_t half_bits(float value) {
    const std::uint32_t u = bits_of(value), magnitude = u & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below 2^-14 a half counts in steps of 2^-24, as a float does from 0.5 on.
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
    return static_cast<std::uint16_t>((magnitude >= 0x477ff000u ? special : finite) | ((u >> 16) & 0x8000u));
}

// Finite, and infinite as a half.
TANDEM_HOST_DEVICE bool beyond_half(float value) {
    const std::uint32_t magnitude = bits_of(value) & 0x7fffffffu;
    return magnitude >= 0x477ff000u && magnitude < 0x7f800000u;
}

}  // namespace tandem::ops::shared
