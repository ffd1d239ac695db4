// The tile registers of AMX, eight of 16 rows of 16 words, and their product of pairs of bfloat16 (pairs.h); in sources
// that are compiled without AMX the same from plain C++. No machine at hand has AMX: README.md.
#pragma once

#include <cstdint>

#include "common/ops/cpu/attention/pairs.h"

namespace tandem::ops::detail {

inline constexpr int kTileRows = 16;  // and words of a row
inline constexpr int kTileCount = 8;

#if defined(__AMX_BF16__) || defined(__AMXBF16__)  // GCC and clang

// Palette 1, every register of full size. A thread uses registers between these two, and calls no library there:
// oneDNN has configurations of its own.
TANDEM_LANES void configure_tiles() {
    struct alignas(64) {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    asm volatile("ldtilecfg %0" ::"m"(config));
}
TANDEM_LANES void release_tiles() {
    asm volatile("tilerelease");
}
// GCC 12's intrinsics do not say that a load reads memory. Rows are `stride` words apart.
template <int kTile>
TANDEM_LANES void load_tile(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride * 4), "i"(kTile) : "memory");
}
template <int kTile>
TANDEM_LANES void store_tile(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride * 4), "i"(kTile) : "memory");
}
template <int kTile>
TANDEM_LANES void clear_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// sum[row][lane] += the products of pairs a[row][k] · b[k][lane].
template <int kSum, int kA, int kB>
TANDEM_LANES void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

#else

struct EmulatedTiles {
    std::uint32_t words[kTileCount][kTileRows][kTileRows];
    bool configured;
};
static thread_local EmulatedTiles emulated_tiles;

// A register of a thread that has no configuration is an undefined instruction.
TANDEM_LANES std::uint32_t (&emulated_tile(int tile))[kTileRows][kTileRows] {
    if (!emulated_tiles.configured) __builtin_trap();
    return emulated_tiles.words[tile];
}
TANDEM_LANES void configure_tiles() {
    if (emulated_tiles.configured) __builtin_trap();  // somebody has not released them
    emulated_tiles = {.words = {}, .configured = true};
}
TANDEM_LANES void release_tiles() {
    emulated_tiles.configured = false;
}
template <int kTile>
TANDEM_LANES void load_tile(const void* from, std::int64_t stride) {
    auto& tile = emulated_tile(kTile);
    for (int row = 0; row < kTileRows; ++row)
        store_pairs(tile[row], load_pairs(static_cast<const std::uint32_t*>(from) + row * stride));
}
template <int kTile>
TANDEM_LANES void store_tile(void* to, std::int64_t stride) {
    auto& tile = emulated_tile(kTile);
    for (int row = 0; row < kTileRows; ++row)
        store_pairs(static_cast<std::uint32_t*>(to) + row * stride, load_pairs(tile[row]));
}
template <int kTile>
TANDEM_LANES void clear_tile() {
    for (auto& row : emulated_tile(kTile)) store_pairs(row, Words{});
}
// As "Operation" of TDPBF16PS has it in Intel's Software Developer's Manual, volume 2: for each element two sums from
// 0, of the pairs' first and of their second numbers, a fused multiply-add for each k in turn; then their sum; then
// that is added to the element. Each of these rounds to nearest even, takes what is subnormal for 0 and leaves 0 for
// it, whatever MXCSR says, and raises nothing. The manual leaves open which NaN comes out. Two other descriptions
// differ (the intrinsics guide's sums begin with the element), so a machine has to be asked: amx_test.cpp.
static inline void multiply_emulated(std::uint32_t (&sum)[kTileRows][kTileRows],
                                     const std::uint32_t (&a)[kTileRows][kTileRows],
                                     const std::uint32_t (&b)[kTileRows][kTileRows]) {
    float b_first[kTileRows][kTileRows], b_second[kTileRows][kTileRows];
    for (int k = 0; k < kTileRows; ++k) {
        for (int lane = 0; lane < kTileRows; ++lane) {
            b_first[k][lane] = bfloat16_number(b[k][lane] & 0xffff);
            b_second[k][lane] = bfloat16_number(b[k][lane] >> 16);
        }
    }
    for (int row = 0; row < kTileRows; ++row) {
        float first[kTileRows] = {}, second[kTileRows] = {};
        for (int k = 0; k < kTileRows; ++k) {
            const float a_first = bfloat16_number(a[row][k] & 0xffff);
            const float a_second = bfloat16_number(a[row][k] >> 16);
            for (int lane = 0; lane < kTileRows; ++lane) {
                first[lane] = add_product(first[lane], a_first, b_first[k][lane]);
                second[lane] = add_product(second[lane], a_second, b_second[k][lane]);
            }
        }
        for (int lane = 0; lane < kTileRows; ++lane) {
            const float before = without_subnormals(__builtin_bit_cast(float, sum[row][lane]));
            const float added = without_subnormals(first[lane] + second[lane]);
            sum[row][lane] = __builtin_bit_cast(std::uint32_t, without_subnormals(before + added));
        }
    }
}
template <int kSum, int kA, int kB>
TANDEM_LANES void multiply_tiles() {
    multiply_emulated(emulated_tile(kSum), emulated_tile(kA), emulated_tile(kB));
}

#endif

// Registers 0 to 3 hold sums, a column of 16 each; 4 the left operand, the others the right one. Rows are words apart.

// Sums of kColumn... += left · right [16 pairs].
template <int... kColumn>
TANDEM_LANES void multiply_columns(const std::uint32_t* left, std::int64_t left_row,
                                   const std::uint32_t* right, std::int64_t right_row, LaneList<kColumn...>) {
    load_tile<4>(left, left_row);
    ((load_tile<5 + kColumn % 3>(right + kColumn * kTileRows, right_row),
      multiply_tiles<kColumn, 4, 5 + kColumn % 3>()),
     ...);
}

struct TileProduct {
    const std::uint32_t* a;  // [16, pairs]
    std::int64_t a_row;
    const std::uint32_t* b;  // [pairs, columns * 16]
    std::int64_t b_row;
    float* c;  // [16, columns * 16]
    std::int64_t c_row;
};

template <int... kColumn>
TANDEM_LANES void add_columns(const TileProduct& t, std::int64_t first, std::int64_t last,
                              LaneList<kColumn...> columns) {
    (load_tile<kColumn>(t.c + kColumn * kTileRows, t.c_row), ...);
    for (std::int64_t pair = first; pair < last; pair += kTileRows)
        multiply_columns(t.a + pair, t.a_row, t.b + pair * t.b_row, t.b_row, columns);
    (store_tile<kColumn>(t.c + kColumn * kTileRows, t.c_row), ...);
}
// c += a · b over pairs [first, last), multiples of 16, for 1 to 4 columns.
static inline void add_tiles(const TileProduct& t, std::int64_t columns, std::int64_t first,
                             std::int64_t last) {
    switch (columns) {
        case 4:
            return add_columns(t, first, last, LaneList<0, 1, 2, 3>{});
        case 3:
            return add_columns(t, first, last, LaneList<0, 1, 2>{});
        case 2:
            return add_columns(t, first, last, LaneList<0, 1>{});
        default:
            return add_columns(t, first, last, LaneList<0>{});
    }
}

}  // namespace tandem::ops::detail
