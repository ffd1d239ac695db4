// The conversions of quantize, element by element. Branch-free, so that loops vectorise.
#pragma once

#include "common/ops/shared/bits.h"

namespace tandem::ops::shared {

// In the low byte: kE4m3Raised more than the code of a magnitude (its float bits; no NaN). One addition rounds:
// `shift` is 2^20 times the power of two below the magnitude, so the sum counts eighths of that power, 8 to 16
// of them, in its low byte; below 2^-6, the smallest normal number, it counts units of 2^-9, 0 to 8. The
// exponent of `shift` is the code's, eight codes a power of two.
inline constexpr std::uint32_t kE4m3Raised = 0x68;
TANDEM_HOST_DEVICE std::uint32_t e4m3_raised(std::uint32_t magnitude) {
    const std::uint32_t clamped = magnitude < 0x43e00000u ? magnitude : 0x43e00000u;  // 448
    const std::uint32_t power = (clamped & 0x7f800000u) + (20u << 23);
    const std::uint32_t shift = power > 0x46800000u ? power : 0x46800000u;  // 2^14
    return bits_of(float_of(clamped) + float_of(shift)) + (shift >> 20);
}

TANDEM_HOST_DEVICE std::uint32_t e4m3_bits(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t code = (e4m3_raised(magnitude) - kE4m3Raised) & 0x7fu;
    return (magnitude > 0x7f800000u ? 0x7fu : code) | ((bits >> 24) & 0x80u);
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

// No NaN. Clamped as integers: compilers make minima of these only.
TANDEM_HOST_DEVICE std::int32_t int8_value(float value) {
    const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    const std::uint32_t clamped = magnitude < 0x42fe0000u ? magnitude : 0x42fe0000u;  // 127
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const float shifted = float_of(clamped | (bits & 0x80000000u)) + magic;
    return static_cast<std::int32_t>(bits_of(shifted)) - static_cast<std::int32_t>(bits_of(magic));
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
