// The conversions of quantize, element by element. Branch-free, so that loops vectorise.
#pragma once

#include "common/ops/shared/bits.h"

namespace tandem::ops::shared {

TANDEM_HOST_DEVICE std::uint32_t e4m3_bits(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: 20 bits of the mantissa are rounded off; the exponent's bias is 7 instead of 127.
    const std::uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    // Below 2^-6: multiples of 2^-9, the unit in the last place of 2^14.
    const float shifted = float_of(magnitude) + 16384.0f;
    const std::uint32_t subnormal = bits_of(shifted) - 0x46800000u;
    std::uint32_t result = magnitude < 0x3c800000u ? subnormal : normal;
    result = magnitude >= 0x43e00000u ? 0x7eu : result;  // 448 and more
    result = magnitude > 0x7f800000u ? 0x7fu : result;
    return result | ((bits >> 24) & 0x80u);
}

TANDEM_HOST_DEVICE std::int32_t int8_value(float value) {
    const float low = value < -127.0f ? -127.0f : value;
    const float clamped = low > 127.0f ? 127.0f : low;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    return static_cast<std::int32_t>(bits_of(clamped + magic)) - static_cast<std::int32_t>(bits_of(magic));
}

}  // namespace tandem::ops::shared
