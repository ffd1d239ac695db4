// The instructions of common/ops/cuda/instructions.cuh, for kernels that run on the host. Operands go by value,
// so that the racecheck sees no variables of a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/support/kernels_on_host.h"  // which includes this at its end

namespace fibers {

template <typename T>
struct Four {
    T of[4];
};

TANDEM_CALLED Four<std::uint32_t> load_matrices(std::uintptr_t row, bool transposed);
TANDEM_CALLED Four<float> multiply(Four<float> c, Four<std::uint32_t> a, std::uint32_t b0, std::uint32_t b1);
TANDEM_CALLED void copy_ahead(std::uintptr_t to, const void* from, bool there);
TANDEM_CALLED void commit_ahead();
TANDEM_CALLED void wait_ahead(int pending);

// 2^x, within 2 ulp, exact for whole x.
TANDEM_ON_HOST float exp2(float x) {
    if (!(x >= -126.0f)) return x != x ? x : 0.0f;
    if (x >= 128.0f) return __builtin_inff();
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const float shifted = x + magic;
    const float r = x - (shifted - magic);
    float p = 1.535336188e-4f;
    p = p * r + 1.339887440e-3f;
    p = p * r + 9.618437357e-3f;
    p = p * r + 5.550332471e-2f;
    p = p * r + 2.402264791e-1f;
    p = p * r + 6.931472028e-1f;
    // 2^n in two factors: n reaches 128, which one exponent field cannot hold
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, 4);
    const auto n = static_cast<std::int32_t>(bits) - 0x4b400000;
    float scales[2];
    const std::uint32_t exponents[2] = {static_cast<std::uint32_t>(n / 2 + 127) << 23,
                                        static_cast<std::uint32_t>(n - n / 2 + 127) << 23};
    std::memcpy(scales, exponents, 8);
    return (p * r + 1.0f) * scales[0] * scales[1];
}

}  // namespace fibers
