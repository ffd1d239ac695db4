// Keys and values in the pages of a cache, a tile of kKeys positions at a time.
#pragma once

#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/attention/tile_mma.cuh"
#include "common/ops/shared/divider.h"

namespace tandem::ops::TANDEM_KERNELS {

// The keys and values of a head of a sequence.
struct PagedRows {
    const std::byte *k, *v;     // of the head in the cache's first slot
    const std::int32_t* table;  // the sequence's pages
    std::uint32_t row_bytes;    // from slot to slot
    int length;                 // no padding: it is copied whole

    // The slot of a position; `pages` divides by the positions of a page.
    __device__ int slot(int position, const shared::Divider& pages) const {
        const auto at = static_cast<std::uint32_t>(position);
        const std::uint32_t page = pages.quotient(at);
        return table[page] * static_cast<int>(pages.divisor) + static_cast<int>(pages.rest(at, page));
    }
};

// How a block's threads load such a tile: where the thread's positions lie is looked up first, and may be long
// before they are copied.
template <int kDim, int kKeys, int kThreads>
struct PagedTile {
    using Loader = TileLoader<kDim, kKeys, kThreads>;
    using Tile = typename Loader::Tile;
    int slots[Loader::kPasses];  // below 0 past the sequence

    __device__ __forceinline__ void look_up(const PagedRows& rows, const shared::Divider& pages, int tile,
                                            int thread) {
#pragma unroll
        for (int pass = 0; pass < Loader::kPasses; ++pass) {
            const int position = tile * kKeys + pass * Loader::kPassRows + Loader::row(thread);
            slots[pass] = position < rows.length ? rows.slot(position, pages) : -1;
        }
    }
    // To be committed by the caller.
    __device__ __forceinline__ void load(const PagedRows& rows, SharedAddress keys, SharedAddress values,
                                         int head_dim, int thread) const {
        const int chunk = Loader::chunk(thread);
        const std::uint32_t offset = Tile::offset(Loader::row(thread), chunk);
#pragma unroll
        for (int pass = 0; pass < Loader::kPasses; ++pass) {
            const std::int64_t from =
                static_cast<std::int64_t>(slots[pass] < 0 ? 0 : slots[pass]) * rows.row_bytes + chunk * 16;
#pragma unroll
            for (int s = 0; s < Tile::kSubTiles; ++s) {
                const bool there = slots[pass] >= 0 && s * Tile::kColumns + chunk * 8 < head_dim;
                const std::int64_t at = there ? from + s * Tile::kRowBytes : 0;
                copy_ahead(Loader::target(keys + offset, pass, s), rows.k + at, there);
                copy_ahead(Loader::target(values + offset, pass, s), rows.v + at, there);
            }
        }
    }
};

}  // namespace tandem::ops::TANDEM_KERNELS
