// What kernels say to the hardware below C++: matrices in and out of shared memory, products of tensor cores,
// copies that run ahead, and float32 operations that no compiler fuses or splits. The only place with assembly
// of these; where kernels run on the host, tests/support/kernels_on_host_instructions.h takes its place.
//
// A warp's product is of bfloat16 matrices with float32 sums, m16n8k16, which an A100 has too (PTX ISA, "Matrix
// fragments for mma.m16n8k16"). Lane 4 g + t has, in pairs of neighbours with the first in the low half:
//   a [16, 16]: rows g (a[0], a[2]) and g + 8 (a[1], a[3]), columns 2t, 2t + 1 (a[0], a[1]) and 8 further
//   b [16, 8]:  column g, rows 2t, 2t + 1 (b[0]) and 8 further (b[1])
//   c [16, 8]:  rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2t and 2t + 1
// a's columns and b's rows may be taken in any order, as long as it is the same for both. c of two products side
// by side, in bfloat16, is a of the next.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/ops/cuda/portable.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// A place in the block's shared memory, in bytes; steps are added to it as to a number.
#if defined(TANDEM_KERNELS_ON_HOST)
using SharedAddress = std::uintptr_t;
#else
using SharedAddress = std::uint32_t;
#endif

__device__ __forceinline__ SharedAddress shared_address(const void* memory) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return reinterpret_cast<SharedAddress>(memory);
#else
    return static_cast<SharedAddress>(__cvta_generic_to_shared(memory));
#endif
}

// Four 8×8 matrices of two-byte numbers. Lanes 8 i … 8 i + 7 name the rows of matrix i, 16 bytes each, which
// begin at multiples of 16; r[i] gets of it row g, columns 2t and 2t + 1. Free of bank conflicts where the
// eight rows of a matrix differ in row / 16 % 8.
//
// Volatile, as the products: all lanes are in it, so it must not move to where only some of them come.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], SharedAddress row) {
#if defined(TANDEM_KERNELS_ON_HOST)
    const fibers::Four<std::uint32_t> loaded = fibers::load_matrices(row, false);
    for (int i = 0; i < 4; ++i) r[i] = loaded.of[i];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
#endif
}

// The same of the matrices' transposes: rows 2t (low half) and 2t + 1, column g.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row) {
#if defined(TANDEM_KERNELS_ON_HOST)
    const fibers::Four<std::uint32_t> loaded = fibers::load_matrices(row, true);
    for (int i = 0; i < 4; ++i) r[i] = loaded.of[i];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
#endif
}

// c += a b
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
#if defined(TANDEM_KERNELS_ON_HOST)
    const fibers::Four<float> sums =
        fibers::multiply({{c[0], c[1], c[2], c[3]}}, {{a[0], a[1], a[2], a[3]}}, b0, b1);
    for (int i = 0; i < 4; ++i) c[i] = sums.of[i];
#else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
    multiply(c, a, b[0], b[1]);
}

// Sixteen bytes on their way to shared memory while the thread goes on, both sides at multiples of 16; zeros
// where they are not there, when `from` need only be some aligned address. Copies are committed in groups; when
// all but the newest kPending groups of a thread have been waited for, the thread itself may read what they
// brought, others after a barrier. Until then nobody touches the target nor writes the source, and a thread
// that ends has waited for all.
__device__ __forceinline__ void copy_ahead(SharedAddress to, const void* from, bool there) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::copy_ahead(to, from, there);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#endif
}
__device__ __forceinline__ void copy_ahead(SharedAddress to, const void* from) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::copy_ahead(to, from, true);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#endif
}
__device__ __forceinline__ void commit_ahead() {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::commit_ahead();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ __forceinline__ void wait_ahead() {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::wait_ahead(kPending);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// x, of which the compiler no longer knows anything: what depends on it is not computed before a loop and kept.
template <typename T>
__device__ __forceinline__ T opaque(T x) {
#if !defined(TANDEM_KERNELS_ON_HOST)
    static_assert(sizeof(T) == 4);
    asm volatile("mov.b32 %0, %0;" : "+r"(x));
#endif
    return x;
}

// 2^x; results below 2^-126 are 0.
__device__ __forceinline__ float fast_exp2(float x) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return fibers::exp2(x);
#else
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

// Whether any lane of the warp says so; all are in it.
__device__ __forceinline__ bool any_lane(bool mine) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return __ballot_sync(0xffffffffu, mine) != 0;
#else
    return __any_sync(0xffffffffu, mine) != 0;
#endif
}

// a b + c in one rounding; a b and a + b in one of their own, however they are used.
__device__ __forceinline__ float fused(float a, float b, float c) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return std::fma(a, b, c);
#else
    return __fmaf_rn(a, b, c);
#endif
}
__device__ __forceinline__ float times(float a, float b) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return a * b;
#else
    return __fmul_rn(a, b);
#endif
}
__device__ __forceinline__ float plus(float a, float b) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return a + b;
#else
    return __fadd_rn(a, b);
#endif
}

}  // namespace tandem::ops::TANDEM_KERNELS
