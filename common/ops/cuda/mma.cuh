// A warp's tensor-core product of bfloat16 matrices with float32 sums, m16n8k16, which an A100 has too (PTX
// ISA, "Matrix fragments for mma.m16n8k16"). Lane 4 g + t has, in pairs of neighbours with the first in the
// low half:
//   a [16, 16]: rows g (a[0], a[2]) and g + 8 (a[1], a[3]), columns 2t, 2t + 1 (a[0], a[1]) and 8 further
//   b [16, 8]:  column g, rows 2t, 2t + 1 (b[0]) and 8 further (b[1])
//   c [16, 8]:  rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2t and 2t + 1
// a's columns and b's rows may be taken in any order, as long as it is the same for both.
#pragma once

#include <cstdint>

#include "common/ops/cuda/portable.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// c += a b. Volatile: all lanes are in it, so it must not move to where only some of them come.
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::multiply(c, a, b);
#else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Transposes an 8×8 matrix of two-byte numbers; a lane gives and gets row g, columns 2t and 2t + 1.
__device__ __forceinline__ std::uint32_t transpose(std::uint32_t pair) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return fibers::transpose(pair);
#else
    std::uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
#endif
}

// The low halves of two words, or the high ones, `first` below.
__device__ __forceinline__ std::uint32_t low_halves(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x5410);
#else
    return (first & 0xffffu) | second << 16;
#endif
}
__device__ __forceinline__ std::uint32_t high_halves(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x7632);
#else
    return first >> 16 | (second & 0xffff0000u);
#endif
}

}  // namespace tandem::ops::TANDEM_KERNELS
