// Gradients of keys and values on a Hopper: keys stay in the warpgroups, the queries that see them pass by, the heads
// of a group in order.
#pragma once

#include "common/ops/cuda/attention/backward_shape_wgmma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

template <int kDim_, int kGroups_ = 2, int kWalked_ = kDim_ == 64 ? 96 : 64>
struct KeyGradientShape : BackwardWgmmaShape<kDim_, kGroups_, kWalked_> {
    using Base = BackwardWgmmaShape<kDim_, kGroups_, kWalked_>;
    static constexpr int kStages = 3;
    static constexpr std::size_t kBytes =
        2 * Base::Own::kBytes + 2 * kStages * Base::Walked::kBytes + kTileAlignment;
    static_assert(kBytes + 4096 <= kMostHopperSharedBytes);
};

struct KeyGradientWork {
    TensorMap q, dout, k, v;
    BackwardInputs b;  // tiles of keys; statistics padded to kWalked
};

template <typename Shape>
struct KeyGradientShared {
    alignas(16) RowStatistics statistics[Shape::kStages][Shape::kWalked];
    BackwardPlace place;
    int key, keys;  // the first one in the segment, and how many
    int first_tile, tiles, turns;
    Ring<Shape::kStages, Shape::kThreads / 32> queries;  // and what belongs to them
    std::uint64_t douts_full[Shape::kStages];
    std::uint64_t own;
};

template <typename Shape>
__device__ __forceinline__ void start_key_gradients(const KeyGradientWork& work,
                                                    KeyGradientShared<Shape>& shared) {
    const AttentionInputs& in = work.b.in;
    shared.place = backward_place(work.b, blockIdx.x / in.kv_heads);
    const DeviceSegment& s = shared.place.segment;
    shared.key = static_cast<int>(shared.place.tile) * Shape::kRows;
    const int left = static_cast<int>(s.k_len) - shared.key;
    shared.keys = left < Shape::kRows ? left : Shape::kRows;
    const auto first = static_cast<int>(shared::first_query(shared.key, s.q_len, s.k_len, s.causal));
    shared.first_tile = first / Shape::kWalked;
    shared.tiles = (static_cast<int>(s.q_len) + Shape::kWalked - 1) / Shape::kWalked - shared.first_tile;
    if (first >= s.q_len) shared.tiles = 0;
    shared.turns = shared.tiles * static_cast<int>(in.group);
    init_mbarrier(shared_address(&shared.own), 1);
    shared.queries.start();
    for (std::uint64_t& full : shared.douts_full) init_mbarrier(shared_address(&full), 1);
    fence_mbarriers();
}

template <typename Shape>
__device__ __forceinline__ void fetch_key_gradients(const KeyGradientWork& work,
                                                    KeyGradientShared<Shape>& shared, SharedAddress keys) {
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    const SharedAddress own = shared_address(&shared.own);
    const std::int64_t kv_head = blockIdx.x % work.b.in.kv_heads;
    const std::int64_t key = shared.place.segment.k_begin + shared.key;
    arrive_expecting(own, 2 * Own::kBytes);
    copy_tile<Own>(keys, work.k, own, kv_head, key);
    copy_tile<Own>(keys + Own::kBytes, work.v, own, kv_head, key);
    const SharedAddress queries = keys + 2 * Own::kBytes;
    const SharedAddress douts = queries + Shape::kStages * Walked::kBytes;
    constexpr std::uint32_t kStatisticsBytes = Shape::kWalked * sizeof(RowStatistics);
    int tile = 0;
    std::int64_t head = kv_head * work.b.in.group;
#pragma unroll 1
    for (int n = 0; n < shared.turns; ++n) {
        const int stage = shared.queries.stage(n);
        const auto offset = static_cast<SharedAddress>(stage * Walked::kBytes);
        const std::int64_t row = static_cast<std::int64_t>(shared.first_tile + tile) * Shape::kWalked;
        const SharedAddress queries_full = shared.queries.open(n, Walked::kBytes + kStatisticsBytes);
        copy_tile<Walked>(queries + offset, work.q, queries_full, head, shared.place.segment.q_begin + row);
        copy_bulk(shared_address(shared.statistics[stage]),
                  work.b.statistics + head * work.b.padded_rows + shared.place.padded_begin + row,
                  kStatisticsBytes, queries_full);
        const SharedAddress douts_full = shared_address(shared.douts_full + stage);
        arrive_expecting(douts_full, Walked::kBytes);
        copy_tile<Walked>(douts + offset, work.dout, douts_full, head, shared.place.segment.q_begin + row);
        if (++tile == shared.tiles) {
            tile = 0;
            ++head;
        }
    }
}

// A warpgroup's walk, for its 64 keys.
template <typename Shape>
__device__ __forceinline__ void sum_key_gradients(const KeyGradientWork& work,
                                                  KeyGradientShared<Shape>& shared, unsigned char* tiles) {
    constexpr int kDim = Shape::kDim, kWalked = Shape::kWalked;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    const int thread = static_cast<int>(threadIdx.x) - 128;
    const int t = thread % 4;
    const int warp_key = thread / 32 * 16;
    const SharedAddress keys_at = shared_address(tiles);
    const auto group_bytes = static_cast<SharedAddress>(thread / 128 * 64 * Own::kRowBytes);
    const RowsOf<Own> keys(keys_at + group_bytes), values(keys_at + Own::kBytes + group_bytes);
    constexpr int kQueriesOffset = 2 * Own::kBytes,
                  kDoutsOffset = kQueriesOffset + Shape::kStages * Walked::kBytes;
    const RowsOf<Walked> queries(keys_at + kQueriesOffset), douts(keys_at + kDoutsOffset);
    const ValuesOf<Walked> query_values(keys_at + kQueriesOffset), dout_values(keys_at + kDoutsOffset);
    float dk[kDim / 8][4] = {}, dv[kDim / 8][4] = {};
    wait_for(shared_address(&shared.own), 0);
    int tile = 0;
#pragma unroll 1
    for (int n = 0; n < shared.turns; ++n) {
        const int stage = shared.queries.stage(n), bytes = stage * Walked::kBytes;
        const SharedAddress douts_full = shared_address(shared.douts_full + stage);
        const int first = (shared.first_tile + tile) * kWalked;
        const int there = static_cast<int>(shared.place.segment.q_len) - first;
        tile = tile + 1 == shared.tiles ? 0 : tile + 1;
        if (there < kWalked) {
            shared.queries.wait(n);
            wait_for(douts_full, shared.queries.parity(n));
            clear_rows<Walked, Shape::kThreads>(tiles + kQueriesOffset + bytes, there, thread);
            clear_rows<Walked, Shape::kThreads>(tiles + kDoutsOffset + bytes, there, thread);
            fence_proxies();
            meet(1, Shape::kThreads);
        }

        // Scores and gradients of probabilities, [keys, queries].
        float p[kWalked / 8][4], ds[kWalked / 8][4];
        shared.queries.wait(n);
        fence_products();
        start_rows<kDim, kWalked>(p, keys, queries, bytes);
        wait_for(douts_full, shared.queries.parity(n));
        start_rows<kDim, kWalked>(ds, values, douts, bytes);
        wait_for_products<1>();
        settle(p);

        // Probabilities; dv += p dout beside what follows.
        const RowStatistics* const rows = shared.statistics[stage] + 2 * t;
#pragma unroll
        for (int x = 0; x < kWalked / 8; ++x) {
            const Words two = load16(rows + 8 * x);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                p[x][e] = probability(p[x][e], work.b.exponent_scale, shared::float_of(two.w[e % 2 * 2]));
        }
        const int offset = static_cast<int>(shared.place.segment.k_len - shared.place.segment.q_len);
        if (shared.place.segment.causal != 0 && first + offset < shared.key + warp_key + 15) {
            const int key = shared.key + warp_key + thread % 32 / 4 - offset - first - 2 * t;
#pragma unroll
            for (int x = 0; x < kWalked / 8; ++x) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (8 * x + e % 2 < key + e / 2 * 8) p[x][e] = 0.0f;
                }
            }
        }
        std::uint32_t p_weights[kWalked / 16][4];
        as_weights(p, p_weights);
        wait_for_products<0>();
        settle(ds);
        fence_products();
        begin_weighted<kDim>(dv, p_weights, dout_values, bytes);

        // ds = p (dp - delta); dk += ds q
#pragma unroll
        for (int x = 0; x < kWalked / 8; ++x) {
            const Words two = load16(rows + 8 * x);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                ds[x][e] = times(p[x][e], plus(ds[x][e], -shared::float_of(two.w[e % 2 * 2 + 1])));
        }
        std::uint32_t ds_weights[kWalked / 16][4];
        as_weights(ds, ds_weights);
        fence_products();
        start_weighted<kDim>(dk, ds_weights, query_values, bytes);
        wait_for_products<0>();
        settle(dv);
        settle(dk);
        shared.queries.release(n);
    }
    const std::int64_t begin = shared.place.segment.k_begin + shared.key;
    const AttentionInputs& in = work.b.in;
    const std::int64_t kv_head = blockIdx.x % in.kv_heads;
    add_sums<kDim>(work.b.dk, begin, warp_key, shared.keys, kv_head, in.kv_heads, in.head_dim,
                   work.b.writes.dk_dv, in.scale, dk);
    add_sums<kDim>(work.b.dv, begin, warp_key, shared.keys, kv_head, in.kv_heads, in.head_dim,
                   work.b.writes.dk_dv, 1.0f, dv);
}

// Grid: (tile of keys, kv head); where queries are causal the first tiles of a segment have the most to do.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, 1)
    key_wgmma_kernel(const __grid_constant__ KeyGradientWork work) {
#if defined(TANDEM_HOPPER_CODE)
    TANDEM_DYNAMIC_SHARED(memory);
    __shared__ KeyGradientShared<Shape> shared;
    if (threadIdx.x == 0) start_key_gradients<Shape>(work, shared);
    __syncthreads();
    const SharedAddress tiles = first_tile(memory);
    if (threadIdx.x < 128) {
        give_registers<Shape::kProducerRegisters>();
        if (threadIdx.x == 0) fetch_key_gradients<Shape>(work, shared, tiles);
        return;
    }
    take_registers<Shape::kRegisters>();
    sum_key_gradients<Shape>(work, shared, memory + (tiles - shared_address(memory)));
#endif
}

}  // namespace tandem::ops::TANDEM_KERNELS
