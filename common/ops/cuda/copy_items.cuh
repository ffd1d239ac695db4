// Items of batched_copy as kernels read them, 16 bytes of the target at a time: its rows end to end are one
// stream of bytes, whose position says where in source and target they lie.
#pragma once

#include "common/ops/batched_copy.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/shared/divider.h"
#include "common/ops/shared/half.h"

namespace tandem::ops::TANDEM_KERNELS {

// narrow: float32 to bfloat16; widen: back. Those of float16 take 16 bytes at a time, not whole blocks.
enum class Conversion : std::int32_t {
    none,
    narrow,
    widen,
    narrow_half,
    widen_half,
    half_of_bfloat16,
    bfloat16_of_half
};

__host__ __device__ __forceinline__ bool of_half(Conversion conversion) {
    return conversion >= Conversion::narrow_half;
}

struct DeviceItem {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;  // null: nothing is written
    std::uint64_t from_stride = 0, to_stride = 0;
    std::uint64_t row_bytes = 0;    // of the target
    std::uint64_t bytes = 0;        // all rows
    std::uint64_t first_block = 0;  // of the item's sums; only of a hashed one
    shared::Divider row_units;  // 16 bytes of the target's rows, where they are `vector` and more than one
    Conversion conversion = Conversion::none;
    bool vector = false;  // 16 bytes of the target never cross a row, and every access is aligned
    bool hashed = false;
};

// So that accesses are global ones for the compiler, which cannot see where pointers from memory point.
__device__ __forceinline__ void assume_global(const DeviceItem& item) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(item.from));
    __builtin_assume(__isGlobal(item.to));
#else
    (void)item;
#endif
}

struct Position {
    std::uint64_t row, in_row;
};

__device__ __forceinline__ Position position(const DeviceItem& item, std::uint64_t at) {
    if (item.row_bytes == item.bytes) return {0, at};
    return {at / item.row_bytes, at % item.row_bytes};
}

// The same of 16 bytes that no row ends in.
__device__ __forceinline__ Position unit_position(const DeviceItem& item, std::uint64_t at) {
    if (item.row_bytes == item.bytes) return {0, at};
    const auto unit = static_cast<std::uint32_t>(at / 16);
    const std::uint32_t row = item.row_units.quotient(unit);
    return {row, std::uint64_t{item.row_units.rest(unit, row)} * 16};
}

// An element of two bytes as one of the other kind.
__device__ __forceinline__ std::uint32_t across_half(Conversion conversion, std::uint32_t bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    return conversion == Conversion::half_of_bfloat16 ? shared::half_bits(shared::float_of_bfloat16(narrow))
                                                      : shared::bfloat16_bits(shared::float_of_half(narrow));
}

// One byte of what is written.
__device__ __forceinline__ std::uint8_t byte_at(const DeviceItem& item, std::uint64_t at) {
    const Position p = position(item, at);
    const std::byte* const row = item.from + p.row * item.from_stride;
    switch (item.conversion) {
        case Conversion::narrow: {
            const float value = reinterpret_cast<const float*>(row)[p.in_row / 2];
            return static_cast<std::uint8_t>(shared::bfloat16_bits(value) >> (8 * (p.in_row % 2)));
        }
        case Conversion::widen: {
            const std::uint32_t bits =
                std::uint32_t{reinterpret_cast<const std::uint16_t*>(row)[p.in_row / 4]} << 16;
            return static_cast<std::uint8_t>(bits >> (8 * (p.in_row % 4)));
        }
        case Conversion::narrow_half: {
            const float value = reinterpret_cast<const float*>(row)[p.in_row / 2];
            return static_cast<std::uint8_t>(shared::half_bits(value) >> (8 * (p.in_row % 2)));
        }
        case Conversion::widen_half: {
            const float value =
                shared::float_of_half(reinterpret_cast<const std::uint16_t*>(row)[p.in_row / 4]);
            return static_cast<std::uint8_t>(shared::bits_of(value) >> (8 * (p.in_row % 4)));
        }
        case Conversion::half_of_bfloat16:
        case Conversion::bfloat16_of_half: {
            const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(row)[p.in_row / 2];
            return static_cast<std::uint8_t>(across_half(item.conversion, bits) >> (8 * (p.in_row % 2)));
        }
        default:
            return static_cast<std::uint8_t>(row[p.in_row]);
    }
}

// Bytes [at, at + 16) of what is written, where the item is `vector` and has all of them.
template <Conversion kConversion>
__device__ __forceinline__ Words read_unit(const DeviceItem& item, std::uint64_t at) {
    const Position p = unit_position(item, at);
    const std::byte* const row = item.from + p.row * item.from_stride;
    if constexpr (kConversion == Conversion::none) {
        return load16(row + p.in_row);
    } else if constexpr (kConversion == Conversion::narrow) {
        const Words wide[2] = {load16(row + 2 * p.in_row), load16(row + 2 * p.in_row + 16)};
        Words words;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Words& from = wide[i / 2];
            const std::uint32_t low = shared::bfloat16_bits(shared::float_of(from.w[i % 2 * 2]));
            const std::uint32_t high = shared::bfloat16_bits(shared::float_of(from.w[i % 2 * 2 + 1]));
            words.w[i] = low | high << 16;
        }
        return words;
    } else {
        const Pair pair = load_pair(row + p.in_row / 2);
        return {{pair.w[0] << 16, pair.w[0] & 0xffff0000u, pair.w[1] << 16, pair.w[1] & 0xffff0000u}};
    }
}

// The same of an item that is cast from or to float16.
__device__ inline Words read_half_unit(const DeviceItem& item, std::uint64_t at) {
    const Position p = unit_position(item, at);
    const std::byte* const row = item.from + p.row * item.from_stride;
    Words words;
    if (item.conversion == Conversion::narrow_half) {
        const Words wide[2] = {load16(row + 2 * p.in_row), load16(row + 2 * p.in_row + 16)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t low = shared::half_bits(shared::float_of(wide[i / 2].w[i % 2 * 2]));
            const std::uint32_t high = shared::half_bits(shared::float_of(wide[i / 2].w[i % 2 * 2 + 1]));
            words.w[i] = low | high << 16;
        }
    } else if (item.conversion == Conversion::widen_half) {
        const Pair pair = load_pair(row + p.in_row / 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const auto bits = static_cast<std::uint16_t>(pair.w[i / 2] >> (16 * (i % 2)));
            words.w[i] = shared::bits_of(shared::float_of_half(bits));
        }
    } else {
        const Words from = load16(row + p.in_row);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words.w[i] = across_half(item.conversion, from.w[i] & 0xffffu) |
                         across_half(item.conversion, from.w[i] >> 16) << 16;
    }
    return words;
}

// The same of any item, as far as there are any; then zeros. Byte by byte.
__device__ inline Words read_bytes(const DeviceItem& item, std::uint64_t at) {
    std::uint32_t w0 = 0, w1 = 0, w2 = 0, w3 = 0;
#pragma unroll 1
    for (unsigned i = 0; i < 16 && at + i < item.bytes; ++i) {
        const std::uint32_t byte = std::uint32_t{byte_at(item, at + i)} << (8 * (i % 4));
        w0 |= i / 4 == 0 ? byte : 0;
        w1 |= i / 4 == 1 ? byte : 0;
        w2 |= i / 4 == 2 ? byte : 0;
        w3 |= i / 4 == 3 ? byte : 0;
    }
    return {{w0, w1, w2, w3}};
}

__device__ inline Words read16(const DeviceItem& item, std::uint64_t at) {
    if (!item.vector || at + 16 > item.bytes) return read_bytes(item, at);
    if (of_half(item.conversion)) return read_half_unit(item, at);
    if (item.conversion == Conversion::none) return read_unit<Conversion::none>(item, at);
    if (item.conversion == Conversion::narrow) return read_unit<Conversion::narrow>(item, at);
    return read_unit<Conversion::widen>(item, at);
}

__device__ __forceinline__ void write_unit(const DeviceItem& item, std::uint64_t at, const Words& words) {
    const Position p = unit_position(item, at);
    store16(item.to + p.row * item.to_stride + p.in_row, words);
}

__device__ inline void write16(const DeviceItem& item, std::uint64_t at, const Words& words) {
    if (item.vector && at + 16 <= item.bytes) return write_unit(item, at, words);
#pragma unroll 1
    for (unsigned i = 0; i < 16 && at + i < item.bytes; ++i) {
        const Position p = position(item, at + i);
        const std::uint32_t word =
            i < 8 ? (i < 4 ? words.w[0] : words.w[1]) : (i < 12 ? words.w[2] : words.w[3]);
        item.to[p.row * item.to_stride + p.in_row] = static_cast<std::byte>(word >> (8 * (i % 4)));
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
