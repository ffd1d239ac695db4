// Gradients of queries on a Hopper: queries stay in the warpgroups, their keys pass by.
#pragma once

#include "common/ops/cuda/attention/backward_shape_wgmma.cuh"
#include "common/ops/cuda/attention/forward_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// kAhead: a turn starts the scores of tile j, its dp and, behind them, what the tile before adds to dq; so keys stay
// one turn longer, and there are three tiles of them. Otherwise a tile's products come one after another: what was
// faster on an H100 with three warpgroups, which fill each other's gaps.
template <int kDim_, int kGroups_ = kDim_ == 64 ? 3 : 2, int kWalked_ = 96, bool kAhead_ = kGroups_ == 2>
struct QueryGradientShape : BackwardWgmmaShape<kDim_, kGroups_, kWalked_> {
    using Base = BackwardWgmmaShape<kDim_, kGroups_, kWalked_>;
    static constexpr bool kAhead = kAhead_;
    static constexpr int kKeyStages = kAhead ? 3 : 2, kValueStages = 2;
    static constexpr std::size_t kBytes =
        2 * Base::Own::kBytes + (kKeyStages + kValueStages) * Base::Walked::kBytes + kTileAlignment;
    static_assert(kBytes + 1024 <= kMostHopperSharedBytes);
};

struct QueryGradientWork {
    TensorMap q, dout, k, v;
    BackwardInputs b;  // tiles of queries
    std::int64_t tiles;
    const float *lse, *delta;
};

template <typename Shape>
struct QueryGradientShared {
    ForwardTile tile;
    std::int64_t k_row;  // the segment's first one, in k
    Ring<Shape::kKeyStages, Shape::kThreads / 32> keys;
    Ring<Shape::kValueStages, Shape::kThreads / 32> values;
    std::uint64_t own;
};

template <typename Shape>
__device__ __forceinline__ void fetch_query_gradients(const QueryGradientWork& work,
                                                      QueryGradientShared<Shape>& shared,
                                                      SharedAddress queries) {
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    const SharedAddress own = shared_address(&shared.own);
    const std::int64_t head = blockIdx.x % work.b.in.heads, kv_head = head / work.b.in.group;
    arrive_expecting(own, 2 * Own::kBytes);
    copy_tile<Own>(queries, work.q, own, head, shared.tile.q_row);
    copy_tile<Own>(queries + Own::kBytes, work.dout, own, head, shared.tile.q_row);
    const SharedAddress keys = queries + 2 * Own::kBytes;
    const SharedAddress values = keys + Shape::kKeyStages * Walked::kBytes;
#pragma unroll 1
    for (int j = 0; j < shared.tile.key_tiles; ++j) {
        const std::int64_t row = shared.k_row + j * Shape::kWalked;
        const SharedAddress keys_full = shared.keys.open(j, Walked::kBytes);
        copy_tile<Walked>(keys + static_cast<SharedAddress>(shared.keys.stage(j) * Walked::kBytes), work.k,
                          keys_full, kv_head, row);
        const SharedAddress values_full = shared.values.open(j, Walked::kBytes);
        copy_tile<Walked>(values + static_cast<SharedAddress>(shared.values.stage(j) * Walked::kBytes),
                          work.v, values_full, kv_head, row);
    }
}

// A warpgroup's walk, for its 64 queries.
template <typename Shape>
struct QueryGradientWalk {
    static constexpr int kDim = Shape::kDim, kWalked = Shape::kWalked;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    static constexpr int kKeysOffset = 2 * Own::kBytes;
    static constexpr int kValuesOffset = kKeysOffset + Shape::kKeyStages * Walked::kBytes;
    const QueryGradientWork& work;
    QueryGradientShared<Shape>& shared;
    unsigned char* const tiles;
    const RowsOf<Own> queries, douts;
    const RowsOf<Walked> keys, values;
    const ValuesOf<Walked> key_values;
    float log[2], delta[2];  // of rows g and g + 8
    float dq[kDim / 8][4] = {};
    std::uint32_t weights[kWalked / 16][4];

    __device__ static int thread() { return static_cast<int>(opaque(threadIdx.x)) - 128; }
    __device__ static int row() { return thread() / 32 * 16 + thread() % 32 / 4; }  // the lane's first one
    __device__ static SharedAddress group_bytes() {
        return static_cast<SharedAddress>((static_cast<int>(threadIdx.x) / 128 - 1) * 64 * Own::kRowBytes);
    }
    __device__ static int key_bytes(int j) { return decltype(shared.keys)::stage(j) * Walked::kBytes; }
    __device__ static int value_bytes(int j) { return decltype(shared.values)::stage(j) * Walked::kBytes; }

    __device__ __forceinline__ QueryGradientWalk(const QueryGradientWork& work,
                                                 QueryGradientShared<Shape>& shared, unsigned char* tiles)
        : work(work),
          shared(shared),
          tiles(tiles),
          queries(shared_address(tiles) + group_bytes()),
          douts(shared_address(tiles) + Own::kBytes + group_bytes()),
          keys(shared_address(tiles) + kKeysOffset),
          values(shared_address(tiles) + kValuesOffset),
          key_values(shared_address(tiles) + kKeysOffset) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const bool there = row() + 8 * h < shared.tile.rows;
            const std::int64_t at =
                blockIdx.x % work.b.in.heads * work.b.in.q_rows + shared.tile.q_row + row() + 8 * h;
            const float l = there ? work.lse[at] : -INFINITY;
            log[h] = l == -INFINITY ? INFINITY : times(l, kLog2E);
            delta[h] = there ? work.delta[at] : 0.0f;
        }
    }

    // Keys and values beyond the segment are none.
    __device__ __forceinline__ void clear_beyond(int j) {
        const int there = shared.tile.k_len - j * kWalked;
        if (there >= kWalked) return;
        shared.keys.wait(j);
        shared.values.wait(j);
        clear_rows<Walked, Shape::kThreads>(tiles + kKeysOffset + key_bytes(j), there, thread());
        clear_rows<Walked, Shape::kThreads>(tiles + kValuesOffset + value_bytes(j), there, thread());
        fence_proxies();
        meet(1, Shape::kThreads);
    }
    __device__ __forceinline__ void start_scores(float (&p)[kWalked / 8][4], int j) {
        clear_beyond(j);
        shared.keys.wait(j);
        fence_products();
        start_rows<kDim, kWalked>(p, queries, keys, key_bytes(j));
    }
    __device__ __forceinline__ void start_dp(float (&ds)[kWalked / 8][4], int j) {
        shared.values.wait(j);
        start_rows<kDim, kWalked>(ds, douts, values, value_bytes(j));
    }
    __device__ __forceinline__ void probabilities(float (&p)[kWalked / 8][4], int j) const {
#pragma unroll
        for (int x = 0; x < kWalked / 8; ++x) {
#pragma unroll
            for (int e = 0; e < 4; ++e) p[x][e] = probability(p[x][e], work.b.exponent_scale, log[e / 2]);
        }
        if ((j + 1) * kWalked <= shared.tile.seen(row() / 16 * 16)) return;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int seen = shared.tile.seen(row() + 8 * h) - j * kWalked - thread() % 4 * 2;
#pragma unroll
            for (int x = 0; x < kWalked / 8; ++x) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    if (8 * x + e >= seen) p[x][2 * h + e] = 0.0f;
                }
            }
        }
    }
    // ds = p (dp - delta), in the place of p
    __device__ __forceinline__ void gradients(float (&p)[kWalked / 8][4],
                                              const float (&ds)[kWalked / 8][4]) const {
#pragma unroll
        for (int x = 0; x < kWalked / 8; ++x) {
#pragma unroll
            for (int e = 0; e < 4; ++e) p[x][e] = times(p[x][e], plus(ds[x][e], -delta[e / 2]));
        }
    }

    __device__ __forceinline__ void turn_ahead(int j) {
        float p[kWalked / 8][4], ds[kWalked / 8][4];
        start_scores(p, j);
        start_dp(ds, j);
        start_weighted<kDim>(dq, weights, key_values, key_bytes(j - 1));
        wait_for_products<2>();
        settle(p);
        probabilities(p, j);
        wait_for_products<1>();
        settle(ds);
        shared.values.release(j);
        gradients(p, ds);
        wait_for_products<0>();
        settle(dq);
        shared.keys.release(j - 1);
        as_weights(p, weights);
    }
    __device__ __forceinline__ void weigh_tile(int j) {
        float p[kWalked / 8][4], ds[kWalked / 8][4];
        start_scores(p, j);
        start_dp(ds, j);
        wait_for_products<1>();
        settle(p);
        probabilities(p, j);
        wait_for_products<0>();
        settle(ds);
        shared.values.release(j);
        gradients(p, ds);
        as_weights(p, weights);
    }
    __device__ __forceinline__ void add_tile(int j) {
        fence_products();
        start_weighted<kDim>(dq, weights, key_values, key_bytes(j));
        wait_for_products<0>();
        settle(dq);
        if (!Shape::kAhead) shared.keys.release(j);
    }
    __device__ __forceinline__ void run_ahead() {
        weigh_tile(0);
#pragma unroll 1
        for (int j = 1; j < shared.tile.key_tiles; ++j) turn_ahead(j);
        add_tile(shared.tile.key_tiles - 1);
    }
    __device__ __forceinline__ void run() {
        if (shared.tile.key_tiles > 0) walk();
        const AttentionInputs& in = work.b.in;
        add_sums<kDim>(work.b.dq, shared.tile.q_row, row() / 16 * 16, shared.tile.rows, blockIdx.x % in.heads,
                       in.heads, in.head_dim, work.b.writes.dq, in.scale, dq);
    }
    __device__ __forceinline__ void walk() {
        wait_for(shared_address(&shared.own), 0);
        if constexpr (Shape::kAhead) {
            run_ahead();
        } else {
#pragma unroll 1
            for (int j = 0; j < shared.tile.key_tiles; ++j) {
                weigh_tile(j);
                add_tile(j);
            }
        }
    }
};

// Grid: (tile of queries, head); the tiles with the most keys, a segment's last, come first.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, 1)
    query_wgmma_kernel(const __grid_constant__ QueryGradientWork work) {
#if defined(TANDEM_HOPPER_CODE)
    TANDEM_DYNAMIC_SHARED(memory);
    __shared__ QueryGradientShared<Shape> shared;
    if (threadIdx.x == 0) {
        const TilePlace place = tile_place(work.b.in, work.tiles - 1 - blockIdx.x / work.b.in.heads);
        shared.tile = forward_tile(place, Shape::kRows, Shape::kWalked);
        shared.k_row = place.segment.k_begin;
        init_mbarrier(shared_address(&shared.own), 1);
        shared.keys.start();
        shared.values.start();
        fence_mbarriers();
    }
    __syncthreads();
    const SharedAddress tiles = first_tile(memory);
    if (threadIdx.x < 128) {
        give_registers<Shape::kProducerRegisters>();
        if (threadIdx.x == 0 && shared.tile.key_tiles > 0) fetch_query_gradients<Shape>(work, shared, tiles);
        return;
    }
    take_registers<Shape::kRegisters>();
    QueryGradientWalk<Shape>(work, shared, memory + (tiles - shared_address(memory))).run();
#endif
}

}  // namespace tandem::ops::TANDEM_KERNELS
