// Compares new elements with a base, for delta_encode: gives a bit for each that has changed and writes it
// over the base.
#pragma once

#include <cstdint>

#include "common/ops/cuda/elements.cuh"
#include "common/ops/shared/divider.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kOfThread = 32;  // elements that a thread compares: a word of the bitmap
inline constexpr int kGroups = kOfThread / static_cast<int>(kVector);

// The elements that are compared with the base, rows of them.
struct NewElements {
    const std::byte* data;
    std::int64_t stride, row_elements, elements;
    bool is_bfloat16, vector;
    bool wide;                  // elements of the base have four bytes, else two
    bool whole;                 // vector, and the base is aligned too
    shared::Divider row_units;  // eight elements of a row, where there are several and they are whole
};

__device__ __forceinline__ void load_fresh(const NewElements& s, std::int64_t at, std::uint32_t (&fresh)[8]) {
    const std::int64_t count = s.elements - at;
    float v[8] = {};
    if (s.vector) {
        const std::int64_t row = at / s.row_elements;
        const Elements elements{const_cast<std::byte*>(s.data) + row * s.stride, s.is_bfloat16, true};
        load8(elements, at - row * s.row_elements, count, v);
    } else {
        for (int i = 0; i < 8 && i < count; ++i) {
            const std::int64_t row = (at + i) / s.row_elements;
            const Elements elements{const_cast<std::byte*>(s.data) + row * s.stride, s.is_bfloat16, false};
            v[i] = load1(elements, (at + i) % s.row_elements);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const std::uint32_t bits = shared::bits_of(v[i]);
        // A bfloat16 as it was: rounding would make a signalling NaN quiet.
        fresh[i] = s.wide ? bits : (s.is_bfloat16 ? bits >> 16 : shared::bfloat16_bits(v[i]));
    }
}

__device__ __forceinline__ std::uint32_t element(const std::byte* from, bool wide, std::int64_t at) {
    return wide ? reinterpret_cast<const std::uint32_t*>(from)[at]
                : reinterpret_cast<const std::uint16_t*>(from)[at];
}

// Eight new elements as they are in the target: one piece of 16 bytes, or two.
template <bool kFromBfloat16, bool kWide>
struct FreshEight {
    static constexpr int kFrom = kFromBfloat16 ? 1 : 2, kTo = kWide ? 2 : 1;
    Words source[kFrom], base[kTo];

    __device__ __forceinline__ void load(const NewElements& s, const std::byte* old, std::int64_t at) {
        const std::byte* from = s.data + at * (8 * kFrom / 4);
        if (s.row_elements != s.elements) {
            const auto unit = static_cast<std::uint32_t>(at / kVector);
            const std::uint32_t row = s.row_units.quotient(unit);
            from = s.data + row * s.stride + std::int64_t{s.row_units.rest(unit, row)} * (16 * kFrom);
        }
#pragma unroll
        for (int n = 0; n < kFrom; ++n) source[n] = load16(from + 16 * n);
#pragma unroll
        for (int n = 0; n < kTo; ++n) base[n] = load16(old + at * (2 * kTo) + 16 * n);
    }
    // A bit for each element that has changed; those are written over the base.
    __device__ __forceinline__ std::uint32_t compare(std::byte* old, std::int64_t at) {
        Words fresh[kTo];
        std::uint32_t bits = 0;
#pragma unroll
        for (int n = 0; n < kTo; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if constexpr (kFromBfloat16 && kWide) {
                    const std::uint32_t pair = source[0].w[2 * n + i / 2];
                    fresh[n].w[i] = i % 2 == 0 ? pair << 16 : pair & 0xffff0000u;
                } else if constexpr (!kFromBfloat16 && !kWide) {
                    const Words& two = source[i / 2];
                    const std::uint32_t low = shared::bfloat16_bits(shared::float_of(two.w[i % 2 * 2]));
                    const std::uint32_t high = shared::bfloat16_bits(shared::float_of(two.w[i % 2 * 2 + 1]));
                    fresh[n].w[i] = low | high << 16;
                } else {
                    fresh[n].w[i] = source[n].w[i];
                }
                const std::uint32_t differs = fresh[n].w[i] ^ base[n].w[i];
                if constexpr (kWide) {
                    bits |= differs != 0 ? 1u << (4 * n + i) : 0u;
                } else {
                    bits |= (differs & 0xffffu) != 0 ? 1u << (2 * i) : 0u;
                    bits |= differs >> 16 != 0 ? 2u << (2 * i) : 0u;
                }
            }
        }
        if (bits != 0) {
#pragma unroll
            for (int n = 0; n < kTo; ++n) store16(old + at * (2 * kTo) + 16 * n, fresh[n]);
        }
        return bits;
    }
};

// The lane's eight elements in each of its warp's groups of 256, which start at `at`; a byte each to `bytes`.
template <bool kFromBfloat16, bool kWide>
__device__ __forceinline__ void compare_whole(const NewElements& source, std::byte* base, std::int64_t at,
                                              std::uint8_t* bytes) {
    constexpr int kAtOnce = kFromBfloat16 && !kWide ? kGroups : kGroups / 2;
#pragma unroll
    for (int part = 0; part < kGroups; part += kAtOnce) {
        FreshEight<kFromBfloat16, kWide> eight[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) eight[n].load(source, base, at + (part + n) * 256);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
            bytes[(part + n) * 32] = static_cast<std::uint8_t>(eight[n].compare(base, at + (part + n) * 256));
    }
}

// The same for any eight elements.
__device__ inline std::uint32_t compare_any(const NewElements& source, std::byte* base, std::int64_t at) {
    if (at >= source.elements) return 0;
    std::uint32_t fresh[8], bits = 0;
    load_fresh(source, at, fresh);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (at + i >= source.elements || element(base, source.wide, at + i) == fresh[i]) continue;
        bits |= 1u << i;
        if (source.wide) {
            reinterpret_cast<std::uint32_t*>(base)[at + i] = fresh[i];
        } else {
            reinterpret_cast<std::uint16_t*>(base)[at + i] = static_cast<std::uint16_t>(fresh[i]);
        }
    }
    return bits;
}

}  // namespace tandem::ops::TANDEM_KERNELS
