// Packs a right-hand side into the blocks that matrix kernels of AVX-512 and AMX, and ours of AVX2, read: columns in blocks, of
// those 16 units of k at a time, a unit of all columns beside one another. A unit is 4 bytes: one float32, or
// two bfloat16 that follow each other along k. Padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/align.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {

constexpr std::int64_t kTileUnits = 16;

// side.layout is rows or columns, `stride` elements apart; block_columns is a multiple of 16. `to` has room
// for whole blocks.
void pack_tiles(const RightSide& side, std::int64_t stride, std::int64_t block_columns, const std::byte* from,
                std::byte* to);

// What bfloat16 [k, n] takes.
inline std::size_t pair_tiles_bytes(std::int64_t n, std::int64_t k, std::int64_t block_columns) {
    return static_cast<std::size_t>(round_up(n, block_columns) * round_up(k, 2 * kTileUnits)) * 2;
}

// What float32 [k, n] takes.
inline std::size_t float_tiles_bytes(std::int64_t n, std::int64_t k, std::int64_t block_columns) {
    return static_cast<std::size_t>(round_up(n, block_columns) * round_up(k, kTileUnits)) * 4;
}

// The same side of float32, from what pack_tiles made of bfloat16 [k, n] in blocks of as many columns.
void widen_tiles(std::int64_t n, std::int64_t k, std::int64_t block_columns, const std::byte* from,
                 float* to);

}  // namespace tandem::ops::detail
