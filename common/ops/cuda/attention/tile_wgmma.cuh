// Tiles of bfloat16 rows as products of warpgroups read them: the same bytes as tile_mma.cuh's, written by
// copies of boxes, named by descriptors.
#pragma once

#include <cstdint>

#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/cuda/attention/tile_mma.cuh"
#include "common/ops/cuda/warpgroup.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr std::size_t kMostHopperSharedBytes = 227 << 10;  // of a block

// Boxes are of tensors that have rows, which they count in 32 bits. k_rows: of k and v.
inline bool fits_boxes(const AttentionInputs& in, std::int64_t k_rows) {
    return in.q_rows > 0 && k_rows > 0 && std::max(in.q_rows, k_rows) < kDividends;
}

// What products call a tile, and what lies some bytes behind it: only the low half changes.
template <typename Tile, int kLeading>
struct TileDescriptor {
    static constexpr std::uint64_t kHigh = ~std::uint64_t{0xffffffff};
    std::uint64_t first;

    __device__ explicit TileDescriptor(SharedAddress at)
        : first(product_tile(at, kLeading, 8 * Tile::kRowBytes, Tile::kRowBytes)) {}
    __device__ std::uint64_t at(int bytes) const {
        return (first & kHigh) | (static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(bytes / 16));
    }
    // Or all steps that are the same from turn to turn would be kept in registers.
    __device__ void forget_steps() { first = (first & kHigh) | opaque(static_cast<std::uint32_t>(first)); }
};

// A tile whose rows are rows of a, or columns of b (Q and K in Q Kᵀ): products go along its columns. `bytes` is
// where the tile lies behind the first.
template <typename Tile>
struct RowsOf : TileDescriptor<Tile, 16> {
    using TileDescriptor<Tile, 16>::TileDescriptor;
    // Sixteen columns; the step must be known to the compiler.
    __device__ std::uint64_t columns(int bytes, int step) const {
        constexpr int kSteps = Tile::kColumns / 16;
        return this->at(bytes + step / kSteps * Tile::kSubTileBytes + step % kSteps * 32);
    }
};

// A tile whose rows are rows of b (V in P V): products go along its rows.
template <typename Tile>
struct ValuesOf : TileDescriptor<Tile, Tile::kSubTileBytes> {
    using TileDescriptor<Tile, Tile::kSubTileBytes>::TileDescriptor;
    __device__ std::uint64_t rows(int bytes, int step) const {
        return this->at(bytes + step * 16 * Tile::kRowBytes);
    }
};

// Sums as an instruction names them.
template <int kTiles>
__device__ __forceinline__ float (&flat(float (&sums)[kTiles][4]))[4 * kTiles] {
    return reinterpret_cast<float(&)[4 * kTiles]>(sums);
}

// After the wait for their products: the compiler takes the sums to have changed here.
template <int kTiles>
__device__ __forceinline__ void settle([[maybe_unused]] float (&sums)[kTiles][4]) {
#if !defined(TANDEM_KERNELS_ON_HOST)
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[n][e])::"memory");
    }
#endif
}

// sums = a bᵀ over kDim columns; a group of products.
template <int kDim, int kColumns, typename A, typename B>
__device__ __forceinline__ void start_rows(float (&sums)[kColumns / 8][4], A a, const B& b, int b_bytes) {
    a.forget_steps();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
        multiply_tiles<kColumns, false>(flat(sums), a.columns(0, k), b.columns(b_bytes, k), k > 0);
    commit_products();
}

// sums += weights · rows, sixteen rows a step, ascending; of a group of products that goes on.
template <int kDim, int kSteps, typename B>
__device__ __forceinline__ void begin_weighted(float (&sums)[kDim / 8][4],
                                               const std::uint32_t (&weights)[kSteps][4], const B& b,
                                               int b_bytes) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
        multiply_tile<kDim, true>(flat(sums), weights[k], b.rows(b_bytes, k), true);
}
// The same, and the end of the group.
template <int kDim, int kSteps, typename B>
__device__ __forceinline__ void start_weighted(float (&sums)[kDim / 8][4],
                                               const std::uint32_t (&weights)[kSteps][4], const B& b,
                                               int b_bytes) {
    begin_weighted<kDim>(sums, weights, b, b_bytes);
    commit_products();
}

// Sums of a product, in bfloat16, are the weights of the next.
template <int kTiles>
__device__ __forceinline__ void as_weights(const float (&sums)[kTiles][4],
                                           std::uint32_t (&weights)[kTiles / 2][4]) {
#pragma unroll
    for (int k = 0; k < kTiles / 2; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            weights[k][i] = bfloat16_pair(sums[2 * k + i / 2][i % 2 * 2], sums[2 * k + i / 2][i % 2 * 2 + 1]);
    }
}

// By one thread: a tile's rows of a head, from tensor row `row`; its bytes arrive at the barrier.
template <typename Tile>
__device__ __forceinline__ void copy_tile(SharedAddress to, const TensorMap& map, SharedAddress barrier,
                                          std::int64_t head, std::int64_t row) {
#pragma unroll
    for (int s = 0; s < Tile::kSubTiles; ++s) {
        copy_box(to + static_cast<SharedAddress>(s * Tile::kSubTileBytes), map, barrier, s * Tile::kColumns,
                 static_cast<int>(head), static_cast<int>(row));
    }
}

// Rows [count, …) of a tile become zeros, by kThreads threads of which this is one; then fence_proxies and a
// barrier of them. Copies bring whole tiles, and what lies behind a segment is no number of ours: 0 · NaN = NaN.
template <typename Tile, int kThreads>
__device__ __forceinline__ void clear_rows(unsigned char* tile, int count, int thread) {
    constexpr int kRows = Tile::kSubTileBytes / Tile::kRowBytes;
    constexpr int kChunks = Tile::kRowBytes / 16;
    for (int item = thread; item < (kRows - count) * kChunks; item += kThreads) {
#pragma unroll
        for (int s = 0; s < Tile::kSubTiles; ++s)
            store16(tile + s * Tile::kSubTileBytes + count * Tile::kRowBytes + item * 16, Words{});
    }
}

// One lane of a warp arrives for it, when all its lanes are done.
__device__ __forceinline__ void arrive_warp(SharedAddress barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
}

// A ring of kStages tiles that one thread fills and kWarps warps read.
template <int kStages, int kWarps>
struct Ring {
    std::uint64_t full[kStages], empty[kStages];

    __device__ void start() {
        for (int s = 0; s < kStages; ++s) {
            init_mbarrier(shared_address(full + s), 1);
            init_mbarrier(shared_address(empty + s), kWarps);
        }
    }
    // The stage of tile n, and the parity of its phase.
    __device__ static int stage(int n) { return n % kStages; }
    __device__ static std::uint32_t parity(int n) { return n / kStages % 2; }

    // The filler: the stage of tile n is free, and so many bytes come.
    __device__ SharedAddress open(int n, std::uint32_t bytes) {
        wait_for(shared_address(empty + stage(n)), parity(n) ^ 1);
        const SharedAddress barrier = shared_address(full + stage(n));
        arrive_expecting(barrier, bytes);
        return barrier;
    }
    // The readers: tile n is there; and this warp is done with it.
    __device__ void wait(int n) { wait_for(shared_address(full + stage(n)), parity(n)); }
    __device__ void release(int n) { arrive_warp(shared_address(empty + stage(n))); }
};

}  // namespace tandem::ops::TANDEM_KERNELS
