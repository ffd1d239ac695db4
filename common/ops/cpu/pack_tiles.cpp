#include "common/ops/cpu/pack_tiles.h"

#include <algorithm>
#include <cstring>

#include "common/ops/cpu/simd.h"

namespace tandem::ops::detail {
namespace {

using Unit = std::uint32_t;
typedef Unit Units __attribute__((vector_size(64)));  // 16 of them

// to[u * to_stride + c] = from[c * from_bytes (in bytes) + u], 16×16.
TANDEM_CLONES void transpose_tile(const unsigned char* from, std::int64_t from_bytes, Unit* to,
                                  std::int64_t to_stride) {
    Units row[16], next[16];
    for (int i = 0; i < 16; ++i) __builtin_memcpy(&row[i], from + i * from_bytes, sizeof(Units));
    for (int i = 0; i < 8; ++i) {  // rows 8 apart
        next[i] = __builtin_shufflevector(row[i], row[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21,
                                          22, 23);
        next[i + 8] = __builtin_shufflevector(row[i], row[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26,
                                              27, 28, 29, 30, 31);
    }
    for (int g = 0; g < 16; g += 8) {  // 4 apart
        for (int i = g; i < g + 4; ++i) {
            row[i] = __builtin_shufflevector(next[i], next[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11,
                                             24, 25, 26, 27);
            row[i + 4] = __builtin_shufflevector(next[i], next[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14,
                                                 15, 28, 29, 30, 31);
        }
    }
    for (int g = 0; g < 16; g += 4) {  // 2 apart
        for (int i = g; i < g + 2; ++i) {
            next[i] = __builtin_shufflevector(row[i], row[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25,
                                              12, 13, 28, 29);
            next[i + 2] = __builtin_shufflevector(row[i], row[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                                  27, 14, 15, 30, 31);
        }
    }
    for (int i = 0; i < 16; i += 2) {  // neighbours
        row[i] = __builtin_shufflevector(next[i], next[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12,
                                         28, 14, 30);
        row[i + 1] = __builtin_shufflevector(next[i], next[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27,
                                             13, 29, 15, 31);
    }
    for (int i = 0; i < 16; ++i) __builtin_memcpy(to + i * to_stride, &row[i], sizeof(Units));
}

TANDEM_CLONES void interleave(const std::uint16_t* low, const std::uint16_t* high, Unit* to,
                              std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<Unit>(low[i]) | static_cast<Unit>(high[i]) << 16;
}

TANDEM_CLONES void interleave_zero(const std::uint16_t* low, Unit* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = low[i];
}

TANDEM_CLONES void part(const Unit* pairs, Unit* first, Unit* second, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        first[i] = pairs[i] << 16;
        second[i] = pairs[i] & 0xffff0000U;
    }
}

struct Source {
    const unsigned char* data;
    std::int64_t stride_bytes, element_bytes, columns, k;
};

// 16 columns, 16 units from `unit` on, of a side stored by columns.
void columns_tile(const Source& s, std::int64_t column, std::int64_t unit, Unit* to, std::int64_t to_stride) {
    const std::int64_t columns = std::clamp<std::int64_t>(s.columns - column, 0, kTileUnits);
    const std::int64_t begin = unit * static_cast<std::int64_t>(sizeof(Unit));
    const std::int64_t bytes =
        std::min(kTileUnits * static_cast<std::int64_t>(sizeof(Unit)), s.k * s.element_bytes - begin);
    if (columns == kTileUnits && bytes == kTileUnits * static_cast<std::int64_t>(sizeof(Unit)))
        return transpose_tile(s.data + column * s.stride_bytes + begin, s.stride_bytes, to, to_stride);
    unsigned char part[kTileUnits][sizeof(Units)] = {};
    for (std::int64_t c = 0; c < columns; ++c)
        std::memcpy(part[c], s.data + (column + c) * s.stride_bytes + begin, static_cast<std::size_t>(bytes));
    transpose_tile(part[0], sizeof(Units), to, to_stride);
}

// One unit of the columns [column, column + count) of a side stored by rows; the rest of `width` is zero.
void rows_unit(const Source& s, std::int64_t column, std::int64_t count, std::int64_t unit, Unit* to,
               std::int64_t width) {
    const std::int64_t each = static_cast<std::int64_t>(sizeof(Unit)) / s.element_bytes;  // rows of k
    const std::int64_t row = unit * each;
    const unsigned char* const from = s.data + row * s.stride_bytes + column * s.element_bytes;
    if (row >= s.k) {
        count = 0;
    } else if (each == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Unit));
    } else if (row + 1 < s.k) {
        interleave(reinterpret_cast<const std::uint16_t*>(from),
                   reinterpret_cast<const std::uint16_t*>(from + s.stride_bytes), to, count);
    } else {
        interleave_zero(reinterpret_cast<const std::uint16_t*>(from), to, count);
    }
    std::memset(to + count, 0, static_cast<std::size_t>(width - count) * sizeof(Unit));
}

// Pieces of some lines (columns, or rows) of a side, from `line` and byte `begin` on: a line apart, so that no processor sees
// them coming. Always inline: g++ drops a call whose function does nothing else.
TANDEM_INLINE void prefetch(const Source& s, std::int64_t line, std::int64_t count, std::int64_t lines,
                            std::int64_t begin, std::int64_t bytes) {
    constexpr std::int64_t kCacheLine = 64;
    for (std::int64_t i = line; i < std::min(line + count, lines); ++i) {
        const unsigned char* const from = s.data + i * s.stride_bytes + begin;
        for (std::int64_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(from + at);
    }
}

}  // namespace

void pack_tiles(const RightSide& side, std::int64_t stride, std::int64_t block_columns, const std::byte* from,
                std::byte* to) {
    const auto element = static_cast<std::int64_t>(dtype_size(side.dtype));
    const Source s{reinterpret_cast<const unsigned char*>(from), stride * element, element, side.n, side.k};
    const std::int64_t units = (side.k * element + 3) / 4;
    auto* block = reinterpret_cast<Unit*>(to);
    for (std::int64_t column = 0; column < side.n; column += block_columns) {
        for (std::int64_t unit = 0; unit < units; unit += kTileUnits, block += kTileUnits * block_columns) {
            if (side.layout == WeightLayout::rows) {
                const std::int64_t count = std::min(block_columns, side.n - column), each = 4 / element;
                for (std::int64_t u = unit; u < unit + kTileUnits; ++u) {
                    prefetch(s, (u + kTileUnits) * each, each, side.k, column * element, count * element);
                    rows_unit(s, column, count, u, block + (u - unit) * block_columns, block_columns);
                }
                continue;
            }
            prefetch(s, column + block_columns, block_columns, side.n, unit * 4, 1);
            for (std::int64_t c = 0; c < block_columns; c += kTileUnits)
                columns_tile(s, column + c, unit, block + c, block_columns);
        }
    }
}

void widen_tiles(std::int64_t n, std::int64_t k, std::int64_t block_columns, const std::byte* from,
                 float* to) {
    const std::int64_t pairs = round_up(k, 2 * kTileUnits) / 2, numbers = round_up(k, kTileUnits);
    const auto* units = reinterpret_cast<const Unit*>(from);
    auto* rows = reinterpret_cast<Unit*>(to);
    for (std::int64_t column = 0; column < n; column += block_columns) {
        for (std::int64_t row = 0; row < numbers; row += 2)
            part(units + row / 2 * block_columns, rows + row * block_columns,
                 rows + (row + 1) * block_columns, block_columns);
        units += pairs * block_columns;
        rows += numbers * block_columns;
    }
}

}  // namespace tandem::ops::detail
