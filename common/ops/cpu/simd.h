// Leaf loops compiled once per instruction set and chosen when the program is loaded. Such a function must
// not call std templates or non-inlined functions, and must be free of locks: it runs where its caller runs.
#pragma once

#include <bit>
#include <cstdint>

// The resolvers of target_clones run before the sanitizers are set up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANDEM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TANDEM_CLONES
#endif
#define TANDEM_INLINE static inline __attribute__((always_inline))

namespace tandem::ops::detail {

// Lanes of the fixed summation order of every reduction over a row: it does not depend on the machine's
// vector width.
inline constexpr std::int64_t kLanes = 16;

// e^x to about one ulp for x in [-87, 88]; below that 0, above it +inf. Vectorises.
TANDEM_INLINE float fast_exp(float x) {
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
    const std::int32_t i = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
    const std::int32_t half = i >> 1;
    const float scale_a = std::bit_cast<float>((half + 127) << 23);
    const float scale_b = std::bit_cast<float>((i - half + 127) << 23);
    const float value = (y * scale_a) * scale_b;
    return x < -87.3f ? 0.0f : (x > 88.7f ? std::bit_cast<float>(0x7f800000) : (x == x ? value : x));
}

TANDEM_INLINE float sum_lanes(const float* lanes) {
    float pair[kLanes / 2];
    for (int i = 0; i < 8; ++i) pair[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; ++i) pair[i] += pair[i + 4];
    return (pair[0] + pair[2]) + (pair[1] + pair[3]);
}

}  // namespace tandem::ops::detail
