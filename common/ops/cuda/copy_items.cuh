// Items of batched_copy as kernels read them, 16 bytes of the target at a time: its rows end to end are one
// stream of bytes, whose position says where in source and target they lie.
#pragma once

#include "common/ops/batched_copy.h"
#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

enum class Conversion : std::int32_t { none, narrow, widen };

struct DeviceItem {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;  // null: nothing is written
    std::uint64_t from_stride = 0, to_stride = 0;
    std::uint64_t row_bytes = 0;    // of the target
    std::uint64_t bytes = 0;        // all rows
    std::uint64_t first_block = 0;  // of the item's sums; only of a hashed one
    Conversion conversion = Conversion::none;
    bool vector = false;  // 16 bytes of the target never cross a row, and every access is aligned
    bool hashed = false;
};

struct Position {
    std::uint64_t row, in_row;
};

__device__ __forceinline__ Position position(const DeviceItem& item, std::uint64_t at) {
    if (item.row_bytes == item.bytes) return {0, at};
    return {at / item.row_bytes, at % item.row_bytes};
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
        default:
            return static_cast<std::uint8_t>(row[p.in_row]);
    }
}

// Bytes [at, at + 16) of what is written, as far as there are any; then zeros.
__device__ __forceinline__ Words read16(const DeviceItem& item, std::uint64_t at) {
    Words words{};
    if (at >= item.bytes) return words;
    if (!item.vector || at + 16 > item.bytes) {
        for (unsigned i = 0; i < 16 && at + i < item.bytes; ++i)
            words.w[i / 4] |= std::uint32_t{byte_at(item, at + i)} << (8 * (i % 4));
        return words;
    }
    const Position p = position(item, at);
    const std::byte* const row = item.from + p.row * item.from_stride;
    if (item.conversion == Conversion::none) return load16(row + p.in_row);
    if (item.conversion == Conversion::narrow) {
        const Words low = load16(row + 2 * p.in_row);
        const Words high = load16(row + 2 * p.in_row + 16);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::uint32_t a = shared::bfloat16_bits(shared::float_of(low.w[2 * i]));
            const std::uint32_t b = shared::bfloat16_bits(shared::float_of(low.w[2 * i + 1]));
            const std::uint32_t c = shared::bfloat16_bits(shared::float_of(high.w[2 * i]));
            const std::uint32_t d = shared::bfloat16_bits(shared::float_of(high.w[2 * i + 1]));
            words.w[i] = a | b << 16;
            words.w[2 + i] = c | d << 16;
        }
        return words;
    }
    const auto* const halves = reinterpret_cast<const std::uint32_t*>(row + p.in_row / 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::uint32_t pair = halves[i];
        words.w[2 * i] = pair << 16;
        words.w[2 * i + 1] = pair & 0xffff0000u;
    }
    return words;
}

__device__ __forceinline__ void write16(const DeviceItem& item, std::uint64_t at, const Words& words) {
    if (at >= item.bytes || item.to == nullptr) return;
    if (item.vector && at + 16 <= item.bytes) {
        const Position p = position(item, at);
        return store16(item.to + p.row * item.to_stride + p.in_row, words);
    }
    for (unsigned i = 0; i < 16 && at + i < item.bytes; ++i) {
        const Position p = position(item, at + i);
        item.to[p.row * item.to_stride + p.in_row] = static_cast<std::byte>(words.w[i / 4] >> (8 * (i % 4)));
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
