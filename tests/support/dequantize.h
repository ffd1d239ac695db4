// What a quantised element stands for, as an engine computes it from the bits and their scale.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "common/ops/quantize.h"

namespace tandem::test {

inline float e4m3_to_float(std::uint8_t bits) {
    const std::uint32_t exponent = (bits >> 3) & 15u;
    const std::uint32_t mantissa = bits & 7u;
    float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent > 0) magnitude = std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
    if ((bits & 0x7fu) == 0x7fu) magnitude = std::numeric_limits<float>::quiet_NaN();
    return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

inline float dequantize(std::uint8_t bits, ops::Quantization kind, float scale) {
    if (kind == ops::Quantization::fp8_block) return e4m3_to_float(bits) * scale;
    return static_cast<float>(static_cast<std::int8_t>(bits)) * scale;
}

}  // namespace tandem::test
