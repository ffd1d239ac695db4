// The exponential of the ops, and the functions made of it: sigmoid, silu.
#pragma once

#include "common/ops/shared/bits.h"

namespace tandem::ops::shared {

// e^x; 0 far below, +inf far above. Branch-free, so that loops vectorise. On the CPU to about one ulp for x
// in [-87, 88]. On a GPU by its own 2^x, because kernels stay bound by memory only with few instructions a
// byte: two ulp, and the rounding error of x log2(e), |x| 2^-24.
TANDEM_HOST_DEVICE float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504088896341f));
    return result;
#else
    const float clamped = x < -87.3f ? -87.3f : (x > 88.7f ? 88.7f : x);
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const float shifted = clamped * 1.44269504088896341f + magic;
    const float n = shifted - magic;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float y = (p * r) * r + r + 1.0f;
    // 2^n in two factors: n reaches 128, which one exponent field cannot hold
    const auto i = static_cast<std::int32_t>(bits_of(shifted)) - static_cast<std::int32_t>(bits_of(magic));
    const std::int32_t half = i >> 1;
    const float scale_a = float_of(static_cast<std::uint32_t>((half + 127) << 23));
    const float scale_b = float_of(static_cast<std::uint32_t>((i - half + 127) << 23));
    const float value = (y * scale_a) * scale_b;
    return x < -87.3f ? 0.0f : (x > 88.7f ? float_of(0x7f800000u) : (x == x ? value : x));
#endif
}

// a / b; on a GPU to two ulp, and 0 for b of 2^126 and more.
TANDEM_HOST_DEVICE float fast_quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdividef(a, b);
#else
    return a / b;
#endif
}

TANDEM_HOST_DEVICE float sigmoid(float x) {
    return fast_quotient(1.0f, 1.0f + fast_exp(-x));
}

TANDEM_HOST_DEVICE float silu(float x) {
    return fast_quotient(x, 1.0f + fast_exp(-x));
}

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x)
TANDEM_HOST_DEVICE float silu_gradient(float x, float s) {
    return s * (1.0f + x * (1.0f - s));
}

}  // namespace tandem::ops::shared
