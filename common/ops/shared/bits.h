// Floats as bits: bfloat16 and binary16 by the rounding of the classes in common/tensor/dtype.h.
#pragma once

#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

TANDEM_HOST_DEVICE std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

TANDEM_HOST_DEVICE float float_of(std::uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

// Round to nearest even; a NaN stays a (quiet) one.
TANDEM_HOST_DEVICE std::uint16_t bfloat16_bits(float value) {
    const std::uint32_t u = bits_of(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Rounds up with the probability of the part that is cut off; `random` is uniform in [0, 2^16). What rounds
// past the largest bfloat16 becomes infinite, as with rounding to nearest.
TANDEM_HOST_DEVICE std::uint16_t bfloat16_bits_stochastic(float value, std::uint32_t random) {
    const std::uint32_t u = bits_of(value);
    const std::uint32_t special = (u & 0x7f800000u) == 0x7f800000u;  // infinite or NaN: nothing to round
    const std::uint32_t quiet = (u & 0x7fffffu) != 0 ? 0x40u : 0u;
    return static_cast<std::uint16_t>(special ? (u >> 16) | quiet : (u + random) >> 16);
}

TANDEM_HOST_DEVICE float float_of_bfloat16(std::uint16_t bits) {
    return float_of(static_cast<std::uint32_t>(bits) << 16);
}

TANDEM_HOST_DEVICE float float_of_half(std::uint16_t bits) {
    const std::uint32_t magnitude = bits & 0x7fffu;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const float moved = float_of(magnitude << 13) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;  // infinities and NaN
    return float_of(bits_of(moved) | special | sign);
}

}  // namespace tandem::ops::shared
