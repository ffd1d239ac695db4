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

// Two at once, the first in the low byte. GPUs from sm_89 on have an instruction for it, which gives the same
// bits but for a NaN's sign.
TANDEM_HOST_DEVICE std::uint32_t e4m3_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    return both;
#else
    return e4m3_bits(first) | e4m3_bits(second) << 8;
#endif
}

TANDEM_HOST_DEVICE std::int32_t int8_value(float value) {
    const float low = value < -127.0f ? -127.0f : value;
    const float clamped = low > 127.0f ? 127.0f : low;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    return static_cast<std::int32_t>(bits_of(clamped + magic)) - static_cast<std::int32_t>(bits_of(magic));
}

// Quotients by one divisor in a few operations each: a product with the reciprocal, and twice what a fused
// multiply-add says is missing (Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990). Rounded as the division is, but for quotients so small that eight bits make nothing of
// them. Divisors that are not between 2^-70 and 2^70 divide.
struct ExactDivision {
    float divisor, reciprocal;
    bool plain;

    TANDEM_MEMBER explicit ExactDivision(float by)
        : divisor(by), reciprocal(1.0f / by), plain(!(by > 0x1p-70f && by < 0x1p70f)) {}
    TANDEM_MEMBER float of(float x) const {
        if (plain) return x / divisor;
        float quotient = x * reciprocal;
        quotient = __builtin_fmaf(__builtin_fmaf(-divisor, quotient, x), reciprocal, quotient);
        quotient = __builtin_fmaf(__builtin_fmaf(-divisor, quotient, x), reciprocal, quotient);
        return x == 0.0f ? x : quotient;  // with its sign
    }
};

}  // namespace tandem::ops::shared
