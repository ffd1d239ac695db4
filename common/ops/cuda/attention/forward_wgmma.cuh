// Flash attention, forward, for a Hopper (Shah et al., "FlashAttention-3"): a thread fetches tiles of keys and
// values, warpgroups have 64 queries each. row_law.cuh says what they compute; forward_mma.cuh is the same for
// other GPUs. A turn starts the scores of tile j and, behind them, the values of tile j - 1, and weighs the scores
// of j while the values are summed.
#pragma once

#include "common/ops/cuda/attention/forward_mma.cuh"
#include "common/ops/cuda/attention/tile_wgmma.cuh"
#include "common/ops/cuda/tensor_map.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// Turns: one warpgroup weighs while the other one multiplies.
template <int kDim_>
struct ForwardWgmmaShape {
    static constexpr int kDim = kDim_, kGroups = kDim == 64 ? 3 : 2, kKeys = kHopperCadence<kDim>;
    static constexpr int kKeyStages = 2, kValueStages = kDim == 256 ? 2 : 3;
    static constexpr bool kTurns = kGroups == 2;
    static constexpr int kSlices = 1, kThreads = 128 * kGroups;  // of those who compute
    static constexpr int kBlockThreads = 128 + kThreads;
    static constexpr int kRows = 64 * kGroups;
    static constexpr int kProducerRegisters = kGroups == 2 ? 40 : 32;
    static constexpr int kRegisters = kGroups == 2 ? 232 : 160;
    static constexpr int kPartTiles = kPart / kKeys;
    using Queries = MmaTile<kDim, kRows>;
    using Keys = MmaTile<kDim, kKeys>;
    static constexpr std::size_t kBytes =
        Queries::kBytes + (kKeyStages + kValueStages) * Keys::kBytes + kTileAlignment;
    static constexpr std::int64_t kPlaceQuads = kThreads * (kDim / 8 + 1);
    static_assert(kBytes + 8192 <= kMostHopperSharedBytes && kPart % kKeys == 0);
};

struct ForwardWgmmaWork {
    TensorMap q, k, v;
    ForwardWork forward;
};

// What the threads of a block share.
template <typename Shape>
struct ForwardShared {
    ForwardTile tile;
    std::int64_t k_row;  // the segment's first one, in k
    std::uint32_t room;  // in the parking
    Ring<Shape::kKeyStages, Shape::kThreads / 32> keys;
    Ring<Shape::kValueStages, Shape::kThreads / 32> values;
    std::uint64_t queries, parked;  // the queries are there; `room` is
    Quad done[Shape::kThreads];     // a RowPair of the part before, while its values are being summed
};

// Named barriers: of each of two warpgroups its turn, and of all that compute.
inline constexpr int kTurnBarrier = 1, kComputeBarrier = 3;

template <typename Shape>
__device__ __forceinline__ void fetch_forward(const ForwardWgmmaWork& work, ForwardShared<Shape>& shared,
                                              SharedAddress queries) {
    const AttentionInputs& in = work.forward.in;
    const SharedAddress keys = queries + Shape::Queries::kBytes;
    const SharedAddress values = keys + Shape::kKeyStages * Shape::Keys::kBytes;
    const std::int64_t head = blockIdx.x % in.heads, kv_head = head / in.group;
    arrive_expecting(shared_address(&shared.queries), Shape::Queries::kBytes);
    copy_tile<typename Shape::Queries>(queries, work.q, shared_address(&shared.queries), head,
                                       shared.tile.q_row);
#pragma unroll 1
    for (int j = 0; j <= shared.tile.key_tiles; ++j) {
        if (j < shared.tile.key_tiles) {
            const SharedAddress full = shared.keys.open(j, Shape::Keys::kBytes);
            copy_tile<typename Shape::Keys>(
                keys + static_cast<SharedAddress>(shared.keys.stage(j) * Shape::Keys::kBytes), work.k, full,
                kv_head, shared.k_row + j * Shape::kKeys);
        }
        if (j > 0) {  // the values of the tile before, whose stage is free later than that of the keys
            const SharedAddress full = shared.values.open(j - 1, Shape::Keys::kBytes);
            copy_tile<typename Shape::Keys>(
                values + static_cast<SharedAddress>(shared.values.stage(j - 1) * Shape::Keys::kBytes), work.v,
                full, kv_head, shared.k_row + (j - 1) * Shape::kKeys);
        }
    }
}

// A warpgroup's walk over the keys of its 64 queries.
template <typename Shape>
struct ForwardWalk {
    using Sums = ForwardSums<Shape>;
    const ForwardWgmmaWork& work;
    ForwardShared<Shape>& shared;
    unsigned char* const tiles;  // where the queries lie, then keys and values
    const int group = static_cast<int>(threadIdx.x) / 128 - 1;
    const RowsOf<typename Shape::Queries> queries;
    const RowsOf<typename Shape::Keys> keys;
    const ValuesOf<typename Shape::Keys> values;
    Sums sums;
    std::uint32_t weights[Shape::kKeys / 16][4];

    __device__ __forceinline__ ForwardWalk(const ForwardWgmmaWork& work, ForwardShared<Shape>& shared,
                                           unsigned char* tiles)
        : work(work),
          shared(shared),
          tiles(tiles),
          queries(shared_address(tiles) +
                  static_cast<SharedAddress>((static_cast<int>(threadIdx.x) / 128 - 1) * 64 *
                                             Shape::Queries::kRowBytes)),
          keys(shared_address(tiles) + Shape::Queries::kBytes),
          values(shared_address(tiles) + Shape::Queries::kBytes + Shape::kKeyStages * Shape::Keys::kBytes) {}

    // The lane's first row, computed anew where it is seldom wanted.
    __device__ static int row() {
        const int thread = static_cast<int>(opaque(threadIdx.x)) - 128;
        return thread / 32 * 16 + thread % 32 / 4;
    }
    __device__ static int key_bytes(int j) { return decltype(shared.keys)::stage(j) * Shape::Keys::kBytes; }
    __device__ static int value_bytes(int j) {
        return decltype(shared.values)::stage(j) * Shape::Keys::kBytes;
    }

    __device__ __forceinline__ bool weigh_scores(float (&scores)[1][Shape::kKeys / 8][4], int j,
                                                 float (&shrink)[2]) {
        if ((j + 1) * Shape::kKeys > shared.tile.seen(row() / 16 * 16))
            hide(scores, shared.tile, row(), j * Shape::kKeys);
        return weigh(scores[0], work.forward.c, sums.rows[0], shrink);
    }
    __device__ __forceinline__ Quad* parked() const {
        return work.forward.parking.places + shared.room * Shape::kPlaceQuads + (threadIdx.x - 128);
    }

    __device__ __forceinline__ void first() {
        float scores[1][Shape::kKeys / 8][4], shrink[2];
        wait_for(shared_address(&shared.queries), 0);
        shared.keys.wait(0);
        fence_products();
        start_rows<Shape::kDim, Shape::kKeys>(scores[0], queries, keys, 0);
        wait_for_products<0>();
        settle(scores[0]);
        shared.keys.release(0);
        weigh_scores(scores, 0, shrink);
        as_weights(scores[0], weights);
    }

    __device__ __forceinline__ void turn(int j) {
        float scores[1][Shape::kKeys / 8][4], shrink[2];
        shared.keys.wait(j);
        if (Shape::kTurns) meet(kTurnBarrier + group, 256);
        fence_products();
        start_rows<Shape::kDim, Shape::kKeys>(scores[0], queries, keys, key_bytes(j));
        shared.values.wait(j - 1);
        start_weighted<Shape::kDim>(sums.values[0], weights, values, value_bytes(j - 1));
        if (Shape::kTurns) arrive_at(kTurnBarrier + (group ^ 1), 256);

        // The scores are there, while the values are being summed.
        wait_for_products<1>();
        settle(scores[0]);
        shared.keys.release(j);
        const bool new_part = j % Shape::kPartTiles == 0;
        if (new_part) {
            sums.end_part();
            const RowPair& rows = sums.rows[0];
            shared.done[threadIdx.x - 128] = {{rows.max[0], rows.max[1], rows.sum[0], rows.sum[1]}};
            sums.rows[0] = {};
        }
        const bool moved = weigh_scores(scores, j, shrink);

        wait_for_products<0>();
        settle(sums.values[0]);
        shared.values.release(j - 1);
        as_weights(scores[0], weights);
        if (new_part) {
            park(j);
        } else if (any_lane(moved)) {
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sums.values[0][n][e] = times(sums.values[0][n][e], shrink[e / 2]);
            }
        }
    }

    // The part that tile j is not of any more.
    __device__ __forceinline__ void park(int j) {
        const RowPair next = sums.rows[0];
        const Quad done = shared.done[threadIdx.x - 128];
        sums.rows[0] = {{done.v[0], done.v[1]}, {done.v[2], done.v[3]}};
        if (j == Shape::kPartTiles) {
            wait_for(shared_address(&shared.parked), 0);
            sums.park(parked());
            sums = {};
        } else {
            sums.merge_parked(parked());
        }
        sums.rows[0] = next;
    }

    __device__ __forceinline__ void last() {
        const int j = shared.tile.key_tiles - 1;
        shared.values.wait(j);
        const int there = shared.tile.k_len - j * Shape::kKeys;
        if (there < Shape::kKeys) {
            clear_rows<typename Shape::Keys, Shape::kThreads>(
                tiles + Shape::Queries::kBytes + Shape::kKeyStages * Shape::Keys::kBytes + value_bytes(j),
                there, static_cast<int>(threadIdx.x) - 128);
            fence_proxies();
            meet(kComputeBarrier, Shape::kThreads);
        }
        fence_products();
        start_weighted<Shape::kDim>(sums.values[0], weights, values, value_bytes(j));
        wait_for_products<0>();
        settle(sums.values[0]);
        sums.end_part();
        if (shared.tile.key_tiles > Shape::kPartTiles) {
            sums.merge(parked());
            meet(kComputeBarrier, Shape::kThreads);
            if (threadIdx.x == 128) work.forward.parking.leave(shared.room);
        }
    }

    __device__ __forceinline__ void run() {
        if (Shape::kTurns && group == 0) arrive_at(kTurnBarrier, 256);
        if (shared.tile.key_tiles > 0) {
            first();
#pragma unroll 1
            for (int j = 1; j < shared.tile.key_tiles; ++j) turn(j);
            last();
        }
        sums.store(shared.tile, row(), work.forward);
    }
};

// Grid: (tile of queries, head); the tiles with the most keys, a segment's last, come first, and the heads of a
// group run side by side.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, 1)
    forward_wgmma_kernel(const __grid_constant__ ForwardWgmmaWork work) {
#if defined(TANDEM_HOPPER_CODE)
    TANDEM_DYNAMIC_SHARED(memory);
    __shared__ ForwardShared<Shape> shared;
    if (threadIdx.x == 0) {
        const AttentionInputs& in = work.forward.in;
        const TilePlace place = tile_place(in, work.forward.tiles - 1 - blockIdx.x / in.heads);
        shared.tile = forward_tile(place, Shape::kRows, Shape::kKeys);
        shared.k_row = place.segment.k_begin;
        init_mbarrier(shared_address(&shared.queries), 1);
        init_mbarrier(shared_address(&shared.parked), 1);
        shared.keys.start();
        shared.values.start();
        fence_mbarriers();
    }
    __syncthreads();
    const SharedAddress tiles = first_tile(memory);
    if (threadIdx.x < 128) {
        give_registers<Shape::kProducerRegisters>();
        if (threadIdx.x == 0 && shared.tile.key_tiles > 0) fetch_forward<Shape>(work, shared, tiles);
        if (threadIdx.x == 32 && shared.tile.key_tiles > Shape::kPartTiles) {
            shared.room = work.forward.parking.free_place(multiprocessor());
            arrive(shared_address(&shared.parked));
        }
        return;
    }
    take_registers<Shape::kRegisters>();
    ForwardWalk<Shape>(work, shared, memory + (tiles - shared_address(memory))).run();
#endif
}

// k_rows: of k and v.
inline void forward_wgmma(Work& work, AttentionInputs in, const std::vector<AttentionSegment>& segments,
                          std::int64_t k_rows, const ForwardOut& out, float* lse) {
    with_mma_head_dim(in.head_dim, [&]<int kDim>() {
        using Shape = ForwardWgmmaShape<kDim>;
        using Keys = typename Shape::Keys;
        const Tiling tiling = query_tiles(work, in, segments, Shape::kRows);
        const std::int64_t blocks = tiling.tiles() * in.heads;
        if (blocks == 0) return;
        const std::int64_t parked = longest(segments) > kPart ? blocks : 0;
        work.launch(
            forward_wgmma_kernel<Shape>, blocks, Shape::kBlockThreads, Shape::kBytes,
            ForwardWgmmaWork{tensor_map<typename Shape::Queries>(in.q.data, in.q_rows, in.heads, in.head_dim),
                             tensor_map<Keys>(in.k.data, k_rows, in.kv_heads, in.head_dim),
                             tensor_map<Keys>(in.v.data, k_rows, in.kv_heads, in.head_dim),
                             {in,
                              tiling.tiles(),
                              in.scale * kLog2E,
                              out,
                              lse,
                              parking(work, parked, Shape::kPlaceQuads),
                              nullptr,
                              {}}});
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
