// Tiles of bfloat16 rows in shared memory, as tensor cores read them: their addresses, how they are loaded, and
// where each lane of a warp reads its operands (instructions.cuh says who holds what).
//
// A tile is cut into sub-tiles of 64 columns, [columns / 64][rows][64]; 16-byte chunk c of row r lies where
// chunk c XOR r mod 8 would. Heads of 96 have sub-tiles of 32 columns, where it is c XOR r / 2 mod 4. So the
// eight rows of a matrix lie in different banks, and so do the chunks that eight neighbouring threads write.
#pragma once

#include <cstdint>

#include "common/ops/cuda/instructions.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr std::size_t kTileAlignment = 1024;  // of a tile: the swizzle is a function of the address

// The first address of a block's dynamic shared memory that a tile may have; ask for kTileAlignment bytes more.
__device__ __forceinline__ SharedAddress first_tile(const void* memory) {
    return (shared_address(memory) + (kTileAlignment - 1)) / kTileAlignment * kTileAlignment;
}

template <int kDim, int kRows>
struct MmaTile {
    static constexpr int kColumns = kDim % 64 == 0 ? 64 : 32;  // of a sub-tile
    static constexpr int kRowBytes = 2 * kColumns;
    static constexpr int kSubTiles = kDim / kColumns;
    static constexpr int kSubTileBytes = kRows * kRowBytes;
    static constexpr int kBytes = kSubTiles * kSubTileBytes;
    static_assert(kDim % kColumns == 0 && kSubTileBytes % kTileAlignment == 0);

    // From the tile's first byte to a chunk of eight columns.
    __device__ static constexpr std::uint32_t offset(int row, int chunk) {
        constexpr int kChunks = kColumns / 8;
        const int turned = chunk % kChunks ^ (kColumns == 64 ? row % 8 : row / 2 % 4);
        return static_cast<std::uint32_t>(chunk / kChunks * kSubTileBytes + row * kRowBytes + turned * 16);
    }

    // Where a lane reads its operand of sixteen rows and the first sixteen columns of a tile, from its first byte.
    // Tensor cores want b[0] and b[1] in neighbouring registers, hence two ways:
    // a of rows × columns: load_matrices gives a[0] … a[3].
    __device__ static std::uint32_t rows_as_a(int lane) { return offset(lane % 16, lane / 16); }
    // b of a product with the rows as columns (K in Q Kᵀ): load_matrices gives b[0], b[1] of the first eight
    // rows, then of the other eight.
    __device__ static std::uint32_t rows_as_columns(int lane) {
        return offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    }
    // b of weights × rows (V in P V): load_matrices_transposed gives b[0], b[1] of the first eight columns, then
    // of the other eight.
    __device__ static std::uint32_t rows_as_b(int lane) { return offset(lane % 16, lane / 16); }

    // From there on: to column 16 `columns`, and to row 16 `rows`. The steps must be known to the compiler.
    __device__ static constexpr SharedAddress step(SharedAddress from, int columns, int rows) {
        constexpr int kSteps = kColumns / 16;
        return (from ^ static_cast<SharedAddress>(columns % kSteps * 32)) +
               static_cast<SharedAddress>(columns / kSteps * kSubTileBytes + rows * 16 * kRowBytes);
    }
};

// How the kThreads threads of a block load a tile: a thread has the same chunk of some rows in all sub-tiles.
// Rows are taken eight and more at a time, so that a thread's place in the swizzle is the same in all of them.
template <int kDim, int kRows, int kThreads>
struct TileLoader {
    using Tile = MmaTile<kDim, kRows>;
    static constexpr int kChunks = Tile::kColumns / 8;
    static constexpr int kPassRows = kThreads / kChunks < kRows ? kThreads / kChunks : kRows;
    static constexpr int kPasses = kRows / kPassRows;
    static_assert(kPassRows % 8 == 0 && kRows % kPassRows == 0);

    // Of a thread in a pass, and in a sub-tile.
    __device__ static int row(int thread) { return thread / kChunks; }
    __device__ static int chunk(int thread) { return thread % kChunks; }
    __device__ static SharedAddress target(SharedAddress tile, int pass, int sub_tile) {
        return tile + static_cast<SharedAddress>(pass * kPassRows * Tile::kRowBytes +
                                                 sub_tile * Tile::kSubTileBytes);
    }

    // `rows` is the first row of a head, the others follow row_bytes apart; the first `count` of them exist,
    // with head_dim columns. All else of the tile becomes zeros. To be committed by the caller.
    __device__ static __forceinline__ void load(SharedAddress tile, const std::byte* rows,
                                                std::uint32_t row_bytes, int count, int head_dim) {
        const int thread =
            static_cast<int>(opaque(threadIdx.x));  // what follows from it is not kept in a loop
        if (kPassRows * kChunks < kThreads && row(thread) >= kPassRows) return;  // more threads than chunks
        const SharedAddress to = tile + Tile::offset(row(thread), chunk(thread));
        const std::byte* const from = rows + (static_cast<std::uint32_t>(row(thread)) * row_bytes +
                                              static_cast<std::uint32_t>(chunk(thread)) * 16);
        if (count >= kRows && head_dim == kDim) {
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
                for (int s = 0; s < Tile::kSubTiles; ++s) {
                    copy_ahead(target(to, pass, s),
                               from + static_cast<std::uint32_t>(pass * kPassRows) * row_bytes +
                                   s * Tile::kRowBytes);
                }
            }
            return;
        }
#pragma unroll 1
        for (int pass = 0; pass < kPasses; ++pass) {
            const bool row_there = row(thread) + pass * kPassRows < count;
#pragma unroll
            for (int s = 0; s < Tile::kSubTiles; ++s) {
                const bool there = row_there && s * Tile::kColumns + chunk(thread) * 8 < head_dim;
                copy_ahead(target(to, pass, s),
                           there ? from + static_cast<std::uint32_t>(pass * kPassRows) * row_bytes +
                                       s * Tile::kRowBytes
                                 : rows,
                           there);
            }
        }
    }
};

// Calls f.template operator()<kDim>() with the smallest of 64, 96, 128 and 256 that holds head_dim; columns
// beyond head_dim, which is a multiple of 8, are zeros.
template <typename F>
void with_mma_head_dim(std::int64_t head_dim, const F& f) {
    if (head_dim <= 64) {
        f.template operator()<64>();
    } else if (head_dim <= 96) {
        f.template operator()<96>();
    } else if (head_dim <= 128) {
        f.template operator()<128>();
    } else {
        f.template operator()<256>();
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
