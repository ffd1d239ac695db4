// Products of a warpgroup (four warps in a row, the first number a multiple of four) on a GPU of compute capability
// 9.0: d [64, columns] (+)= a [64, 16] b [16, columns] of bfloat16 with float32 sums. Warp w of the group has rows
// 16 w … 16 w + 15 of d and a, columns 8 j … 8 j + 7 of d in d[4 j] … d[4 j + 3], as c of instructions.cuh; a as
// there, or in shared memory. Products run on: nobody touches d, a's registers nor the tiles until they have been
// waited for. On the host tests/support/kernels_on_host_products.h takes the place of this.
//
// Tiles are swizzled as TMA does it, over rows of 64 (128 bytes) or 32 columns:
//   rows of terms (a; b where b's columns are the tile's rows): address of an element start + row % 8 · swizzle +
//     row / 8 · stride + 2 term; `leading` is not used
//   terms of rows (kTransposed; b where b's rows are the tile's rows): start + column % width · 2 + column / width ·
//     leading + term % 8 · swizzle + term / 8 · stride
#pragma once

#include "common/ops/cuda/hopper.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// What products call a tile; another start, some bytes further, is that many / 16 more. All in bytes.
__device__ __forceinline__ std::uint64_t product_tile(SharedAddress start, unsigned leading, unsigned stride,
                                                      unsigned swizzle) {
#if defined(TANDEM_KERNELS_ON_HOST)
    return fibers::tile_at(start, leading, stride, swizzle);
#else
    return (start & 0x3ffffu) >> 4 | std::uint64_t{leading >> 4} << 16 | std::uint64_t{stride >> 4} << 32 |
           std::uint64_t{swizzle == 128 ? 1u : 2u} << 62;
#endif
}

// Before the first product, and whenever anything but a product has touched registers of the next ones.
__device__ __forceinline__ void fence_products() {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::fence_products();
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void commit_products() {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::commit_products();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until all but the newest kPending committed groups, at most 7, are over.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
    static_assert(kPending >= 0 && kPending <= 7);
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::wait_for_products(kPending);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

#if defined(TANDEM_KERNELS_ON_HOST)

template <int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_tiles(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                               bool add) {
    fibers::issue_product(d, kColumns, nullptr, a, b, kTransposed, add);
}
template <int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_tile(float (&d)[kColumns / 2], const std::uint32_t (&a)[4],
                                              std::uint64_t b, bool add) {
    fibers::issue_product(d, kColumns, a, 0, b, kTransposed, add);
}

#else

// clang-format off
#define TANDEM_TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define TANDEM_NAMES_32 TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) "%30, %31"
#define TANDEM_NAMES_48 TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) TANDEM_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47"
#define TANDEM_NAMES_64 TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) TANDEM_TEN(3) TANDEM_TEN(4) TANDEM_TEN(5) "%60, %61, %62, %63"
#define TANDEM_NAMES_128 TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) TANDEM_TEN(3) TANDEM_TEN(4) TANDEM_TEN(5) TANDEM_TEN(6) \
    TANDEM_TEN(7) TANDEM_TEN(8) TANDEM_TEN(9) TANDEM_TEN(10) TANDEM_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define TANDEM_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TANDEM_16(i) TANDEM_4(i), TANDEM_4(i + 4), TANDEM_4(i + 8), TANDEM_4(i + 12)
#define TANDEM_SUMS_32 TANDEM_16(0), TANDEM_16(16)
#define TANDEM_SUMS_48 TANDEM_SUMS_32, TANDEM_16(32)
#define TANDEM_SUMS_64 TANDEM_SUMS_48, TANDEM_16(48)
#define TANDEM_SUMS_128 TANDEM_SUMS_64, TANDEM_16(64), TANDEM_16(80), TANDEM_16(96), TANDEM_16(112)
#define TANDEM_PRODUCT(columns, names, operands, add) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" names "}, " operands ";\n}"
// clang-format on

template <int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_tiles(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                               bool add) {
    static_assert(kColumns == 64 || kColumns == 96 || kColumns == 128 || kColumns == 256);
    if constexpr (kColumns == 64) {
        asm volatile(TANDEM_PRODUCT(64, TANDEM_NAMES_32, "%32, %33, p, 1, 1, 0, %35", 34)
                     : TANDEM_SUMS_32
                     : "l"(a), "l"(b), "r"(int{add}), "n"(int{kTransposed}));
    } else if constexpr (kColumns == 96) {
        asm volatile(TANDEM_PRODUCT(96, TANDEM_NAMES_48, "%48, %49, p, 1, 1, 0, %51", 50)
                     : TANDEM_SUMS_48
                     : "l"(a), "l"(b), "r"(int{add}), "n"(int{kTransposed}));
    } else if constexpr (kColumns == 128) {
        asm volatile(TANDEM_PRODUCT(128, TANDEM_NAMES_64, "%64, %65, p, 1, 1, 0, %67", 66)
                     : TANDEM_SUMS_64
                     : "l"(a), "l"(b), "r"(int{add}), "n"(int{kTransposed}));
    } else {
        asm volatile(TANDEM_PRODUCT(256, TANDEM_NAMES_128, "%128, %129, p, 1, 1, 0, %131", 130)
                     : TANDEM_SUMS_128
                     : "l"(a), "l"(b), "r"(int{add}), "n"(int{kTransposed}));
    }
}

template <int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_tile(float (&d)[kColumns / 2], const std::uint32_t (&a)[4],
                                              std::uint64_t b, bool add) {
    static_assert(kColumns == 64 || kColumns == 96 || kColumns == 128 || kColumns == 256);
    if constexpr (kColumns == 64) {
        asm volatile(TANDEM_PRODUCT(64, TANDEM_NAMES_32, "{%32, %33, %34, %35}, %36, p, 1, 1, %38", 37)
                     : TANDEM_SUMS_32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}),
                       "n"(int{kTransposed}));
    } else if constexpr (kColumns == 96) {
        asm volatile(TANDEM_PRODUCT(96, TANDEM_NAMES_48, "{%48, %49, %50, %51}, %52, p, 1, 1, %54", 53)
                     : TANDEM_SUMS_48
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}),
                       "n"(int{kTransposed}));
    } else if constexpr (kColumns == 128) {
        asm volatile(TANDEM_PRODUCT(128, TANDEM_NAMES_64, "{%64, %65, %66, %67}, %68, p, 1, 1, %70", 69)
                     : TANDEM_SUMS_64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}),
                       "n"(int{kTransposed}));
    } else {
        asm volatile(
            TANDEM_PRODUCT(256, TANDEM_NAMES_128, "{%128, %129, %130, %131}, %132, p, 1, 1, %134", 133)
            : TANDEM_SUMS_128
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}), "n"(int{kTransposed}));
    }
}

#undef TANDEM_TEN
#undef TANDEM_NAMES_32
#undef TANDEM_NAMES_48
#undef TANDEM_NAMES_64
#undef TANDEM_NAMES_128
#undef TANDEM_4
#undef TANDEM_16
#undef TANDEM_SUMS_32
#undef TANDEM_SUMS_48
#undef TANDEM_SUMS_64
#undef TANDEM_SUMS_128
#undef TANDEM_PRODUCT
#endif

}  // namespace tandem::ops::TANDEM_KERNELS
