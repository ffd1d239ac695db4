// Elements of a float32 or bfloat16 tensor as kernels see them: eight at a time, in 16-byte accesses where
// the tensor allows that, one by one where it does not. The dtype is known at run time: the kernels are bound
// by memory, and a branch that all threads take alike costs less than a second instance.
#pragma once

#include <cstdint>

#include "common/ops/cuda/portable.cuh"
#include "common/ops/shared/bits.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr std::int64_t kVector = 8;

struct Elements {
    std::byte* data = nullptr;
    bool is_bfloat16 = false;
    bool vector = false;  // rows start at multiples of 16 bytes and hold a multiple of eight elements
};

// Rows of `row` elements.
inline Elements elements(const Tensor& tensor, std::int64_t row) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
    return {tensor.raw(), tensor.dtype() == DType::bfloat16, aligned && row % kVector == 0};
}

// The tensor as one row, whose last elements are taken one by one.
inline Elements flat(const Tensor& tensor) {
    return elements(tensor, 0);
}

struct alignas(16) Words {
    std::uint32_t w[4];
};

struct alignas(8) Pair {
    std::uint32_t w[2];
};

__device__ __forceinline__ Words load16(const void* from) {
    TANDEM_CHECK_ALIGNED(from, 16);
    return *static_cast<const Words*>(from);
}

__device__ __forceinline__ void store16(void* to, const Words& words) {
    TANDEM_CHECK_ALIGNED(to, 16);
    *static_cast<Words*>(to) = words;
}

__device__ __forceinline__ Pair load_pair(const void* from) {
    TANDEM_CHECK_ALIGNED(from, 8);
    return *static_cast<const Pair*>(from);
}

__device__ __forceinline__ void store_pair(void* to, const Pair& pair) {
    TANDEM_CHECK_ALIGNED(to, 8);
    *static_cast<Pair*>(to) = pair;
}

// Two numbers as bfloat16, the first in the low half. A GPU rounds both in one instruction, in which a NaN
// stays some NaN.
__device__ __forceinline__ std::uint32_t bfloat16_pair(float first, float second) {
#if defined(__CUDA_ARCH__)
    std::uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return shared::bfloat16_bits(first) | std::uint32_t{shared::bfloat16_bits(second)} << 16;
#endif
}

// Sixteen bytes as numbers, and back: eight of bfloat16 or four of float32.
template <bool kBfloat16>
inline constexpr int kPerWords = kBfloat16 ? 8 : 4;

template <bool kBfloat16>
__device__ __forceinline__ void unpack(const Words& words, float (&v)[kPerWords<kBfloat16>]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (kBfloat16) {
            v[2 * i] = shared::float_of(words.w[i] << 16);
            v[2 * i + 1] = shared::float_of(words.w[i] & 0xffff0000u);
        } else {
            v[i] = shared::float_of(words.w[i]);
        }
    }
}

template <bool kBfloat16>
__device__ __forceinline__ Words pack(const float (&v)[kPerWords<kBfloat16>]) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (kBfloat16) {
            words.w[i] = bfloat16_pair(v[2 * i], v[2 * i + 1]);
        } else {
            words.w[i] = shared::bits_of(v[i]);
        }
    }
    return words;
}

// Eight neighbours of a dtype that the compiler knows: no branch keeps the next load waiting for this one.
template <bool kBfloat16>
__device__ __forceinline__ void load_eight(const Elements& from, std::int64_t at, float (&v)[8]) {
    if constexpr (kBfloat16) {
        unpack<true>(load16(from.data + 2 * at), v);
    } else {
        const Words words[2] = {load16(from.data + 4 * at), load16(from.data + 4 * at + 16)};
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = shared::float_of(words[i / 4].w[i % 4]);
    }
}

template <bool kBfloat16>
__device__ __forceinline__ void store_eight(const Elements& to, std::int64_t at, const float (&v)[8]) {
    if constexpr (kBfloat16) {
        store16(to.data + 2 * at, pack<true>(v));
    } else {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float half[4] = {v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3]};
            store16(to.data + 4 * at + 16 * n, pack<false>(half));
        }
    }
}

__device__ __forceinline__ float load1(const Elements& from, std::int64_t at) {
    if (from.is_bfloat16)
        return shared::float_of_bfloat16(reinterpret_cast<const std::uint16_t*>(from.data)[at]);
    return reinterpret_cast<const float*>(from.data)[at];
}

__device__ __forceinline__ void store1(const Elements& to, std::int64_t at, float value) {
    if (to.is_bfloat16) {
        reinterpret_cast<std::uint16_t*>(to.data)[at] = shared::bfloat16_bits(value);
    } else {
        reinterpret_cast<float*>(to.data)[at] = value;
    }
}

// Elements [at, at + 8) of which `count` exist; 0 for the others.
__device__ __forceinline__ void load8(const Elements& from, std::int64_t at, std::int64_t count,
                                      float (&v)[8]) {
    if (from.vector && count >= kVector) {
        if (from.is_bfloat16) {
            const Words words = load16(from.data + 2 * at);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                v[2 * i] = shared::float_of(words.w[i] << 16);
                v[2 * i + 1] = shared::float_of(words.w[i] & 0xffff0000u);
            }
        } else {
            const Words low = load16(from.data + 4 * at);
            const Words high = load16(from.data + 4 * at + 16);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                v[i] = shared::float_of(low.w[i]);
                v[4 + i] = shared::float_of(high.w[i]);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] = i < count ? load1(from, at + i) : 0.0f;
}

__device__ __forceinline__ void store8(const Elements& to, std::int64_t at, std::int64_t count,
                                       const float (&v)[8]) {
    if (to.vector && count >= kVector) {
        if (to.is_bfloat16) {
            Words words;
#pragma unroll
            for (int i = 0; i < 4; ++i) words.w[i] = bfloat16_pair(v[2 * i], v[2 * i + 1]);
            store16(to.data + 2 * at, words);
        } else {
            Words low, high;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                low.w[i] = shared::bits_of(v[i]);
                high.w[i] = shared::bits_of(v[4 + i]);
            }
            store16(to.data + 4 * at, low);
            store16(to.data + 4 * at + 16, high);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
        if (i < count) store1(to, at + i, v[i]);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
