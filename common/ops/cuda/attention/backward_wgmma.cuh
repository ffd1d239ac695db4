// Flash attention, backward, for a Hopper, without atomics: backward_mma.cuh says what is summed. One kernel has
// keys in its warpgroups and walks over the queries that see them, the heads of a group in order; the other one has
// queries and walks over their keys. A thread fetches the tiles. Scores and their gradients stay in registers,
// where they are the weights of the products behind them.
#pragma once

#include "common/ops/cuda/attention/backward_fp32.cuh"
#include "common/ops/cuda/attention/backward_mma.cuh"
#include "common/ops/cuda/attention/forward_mma.cuh"
#include "common/ops/cuda/attention/tile_wgmma.cuh"
#include "common/ops/cuda/tensor_map.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// kDim columns, 64 rows a warpgroup; the tiles that pass by have kWalked rows.
template <int kDim_, int kGroups_, int kWalked_>
struct BackwardWgmmaShape {
    static constexpr int kDim = kDim_, kGroups = kGroups_, kWalked = kWalked_;
    static constexpr int kThreads = 128 * kGroups;  // of those who compute
    static constexpr int kBlockThreads = 128 + kThreads;
    static constexpr int kRows = 64 * kGroups;
    static constexpr int kProducerRegisters = kGroups == 2 ? 24 : 32;
    static constexpr int kRegisters = kGroups == 2 ? 240 : 160;
    using Own = MmaTile<kDim, kRows>;
    using Walked = MmaTile<kDim, kWalked>;
};

// --- Gradients of keys and values.

template <int kDim_, int kGroups_ = 2, int kWalked_ = kDim_ == 64 ? 96 : 64, int kStages_ = 3,
          bool kTurns_ = false>
struct KeyGradientShape : BackwardWgmmaShape<kDim_, kGroups_, kWalked_> {
    using Base = BackwardWgmmaShape<kDim_, kGroups_, kWalked_>;
    static constexpr int kStages = kStages_;
    static constexpr bool kTurns = kTurns_;
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
    if (Shape::kTurns && thread < 128) arrive_at(2, 256);
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
        if (Shape::kTurns) meet(2 + thread / 128, 256);
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
        if (Shape::kTurns) arrive_at(2 + (thread / 128 ^ 1), 256);
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

// --- Gradients of queries.

enum class Order {
    inTurn,  // a tile's products one after another
    ahead,  // a turn starts the scores of tile j, its dp and, behind them, what the tile before adds to dq; so
            // keys stay one turn longer, and there are three tiles of them
    aheadOfDp,  // the same, dp last
};
template <int kDim_, int kGroups_ = 2, int kWalked_ = kDim_ == 64 ? 128 : 96, Order kOrder_ = Order::ahead,
          bool kTurns_ = false, int kKeyStages_ = kOrder_ == Order::inTurn ? 2 : 3, int kHeld_ = 0>
struct QueryGradientShape : BackwardWgmmaShape<kDim_, kGroups_, kWalked_> {
    using Base = BackwardWgmmaShape<kDim_, kGroups_, kWalked_>;
    static constexpr Order kOrder = kOrder_;
    static constexpr bool kTurns = kTurns_;
    static constexpr int kHeld = kHeld_;
    static constexpr int kKeyStages = kKeyStages_, kValueStages = 2;
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
    HeldRows<Shape::kHeld >= 1 ? kDim : 16> held_queries;
    HeldRows<Shape::kHeld >= 2 ? kDim : 16> held_douts;
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
        if (Shape::kTurns) meet(2 + group(), 256);
        fence_products();
        if constexpr (Shape::kHeld >= 1) {
            start_rows<kDim, kWalked>(p, held_queries, keys, key_bytes(j));
        } else {
            start_rows<kDim, kWalked>(p, queries, keys, key_bytes(j));
        }
    }
    __device__ __forceinline__ void start_dp(float (&ds)[kWalked / 8][4], int j) {
        shared.values.wait(j);
        if constexpr (Shape::kHeld >= 2) {
            start_rows<kDim, kWalked>(ds, held_douts, values, value_bytes(j));
        } else {
            start_rows<kDim, kWalked>(ds, douts, values, value_bytes(j));
        }
    }
    __device__ __forceinline__ void end_start() {
        if (Shape::kTurns) arrive_at(2 + (group() ^ 1), 256);
    }
    __device__ static int group() {
        return static_cast<int>(threadIdx.x) / 128 - 1;
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
        if (Shape::kOrder == Order::ahead) start_dp(ds, j);
        start_weighted<kDim>(dq, weights, key_values, key_bytes(j - 1));
        if (Shape::kOrder == Order::aheadOfDp) start_dp(ds, j);
        end_start();
        wait_for_products<2>();
        settle(p);
        probabilities(p, j);
        if (Shape::kOrder == Order::ahead) {
            wait_for_products<1>();
            settle(ds);
            shared.values.release(j);
            gradients(p, ds);
            wait_for_products<0>();
            settle(dq);
            shared.keys.release(j - 1);
        } else {
            wait_for_products<1>();
            settle(dq);
            shared.keys.release(j - 1);
            wait_for_products<0>();
            settle(ds);
            shared.values.release(j);
            gradients(p, ds);
        }
        as_weights(p, weights);
    }
    __device__ __forceinline__ void weigh_tile(int j) {
        float p[kWalked / 8][4], ds[kWalked / 8][4];
        start_scores(p, j);
        start_dp(ds, j);
        end_start();
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
        if (Shape::kOrder == Order::inTurn) shared.keys.release(j);
    }
    __device__ __forceinline__ void run_ahead() {
        weigh_tile(0);
#pragma unroll 1
        for (int j = 1; j < shared.tile.key_tiles; ++j) turn_ahead(j);
        add_tile(shared.tile.key_tiles - 1);
    }
    __device__ __forceinline__ void run() {
        if (Shape::kTurns && group() == 0) arrive_at(2, 256);
        if (shared.tile.key_tiles > 0) walk();
        const AttentionInputs& in = work.b.in;
        add_sums<kDim>(work.b.dq, shared.tile.q_row, row() / 16 * 16, shared.tile.rows, blockIdx.x % in.heads,
                       in.heads, in.head_dim, work.b.writes.dq, in.scale, dq);
    }
    __device__ __forceinline__ void walk() {
        wait_for(shared_address(&shared.own), 0);
        const int first_row = thread() / 32 * 16;
        if constexpr (Shape::kHeld >= 1) held_queries.template load<Own>(shared_address(tiles), first_row);
        if constexpr (Shape::kHeld >= 2)
            held_douts.template load<Own>(shared_address(tiles) + Own::kBytes, first_row);
        if constexpr (Shape::kOrder != Order::inTurn) {
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

// --- Launches. `list`: segments that share no keys; k_rows: of k and v.

template <typename Tile>
TensorMap query_map(const BackwardInputs& b, const std::byte* rows) {
    return tensor_map<Tile>(rows, b.in.q_rows, b.in.heads, b.in.head_dim);
}

template <int kDim>
void keys_by_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                   const std::vector<AttentionSegment>& list, std::int64_t k_rows) {
    using Shape = KeyGradientShape<kDim>;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    Tiling keys, queries;
    std::vector<std::int64_t> begins;
    for (const AttentionSegment& segment : list) {
        begins.push_back(queries.tiles() * Shape::kWalked);
        keys.add(segment, segment.k_len, Shape::kRows);
        queries.add(segment, segment.q_len, Shape::kWalked);
    }

    // What the queries are known by.
    AttentionInputs by_query = b.in;
    queries.upload(work, by_query);
    b.padded_begin = work.table(begins);
    b.padded_rows = queries.tiles() * Shape::kWalked;
    const std::int64_t items = b.in.heads * b.padded_rows;
    auto* const statistics = work.scratch<RowStatistics>(items);
    work.launch(statistics_kernel, ceil_div(items, kTileThreads), kTileThreads, 0, by_query, g.lse, g.delta,
                b.padded_rows, std::int64_t{Shape::kWalked}, statistics);
    b.statistics = statistics;

    keys.upload(work, b.in);
    work.launch(key_wgmma_kernel<Shape>, keys.tiles() * b.in.kv_heads, Shape::kBlockThreads, Shape::kBytes,
                KeyGradientWork{query_map<Walked>(b, b.in.q.data), query_map<Walked>(b, b.dout),
                                tensor_map<Own>(b.in.k.data, k_rows, b.in.kv_heads, b.in.head_dim),
                                tensor_map<Own>(b.in.v.data, k_rows, b.in.kv_heads, b.in.head_dim), b});
}

template <int kDim>
void queries_by_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                      const std::vector<std::vector<AttentionSegment>>& lists, std::int64_t k_rows) {
    using Shape = QueryGradientShape<kDim>;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    Tiling queries;
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) queries.add(segment, segment.q_len, Shape::kRows);
    }
    if (queries.tiles() == 0) return;
    queries.upload(work, b.in);
    work.launch(query_wgmma_kernel<Shape>, queries.tiles() * b.in.heads, Shape::kBlockThreads, Shape::kBytes,
                QueryGradientWork{query_map<Own>(b, b.in.q.data), query_map<Own>(b, b.dout),
                                  tensor_map<Walked>(b.in.k.data, k_rows, b.in.kv_heads, b.in.head_dim),
                                  tensor_map<Walked>(b.in.v.data, k_rows, b.in.kv_heads, b.in.head_dim), b,
                                  queries.tiles(), g.lse, g.delta});
}

template <int kDim>
void backward_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                    const std::vector<std::vector<AttentionSegment>>& lists, std::int64_t k_rows) {
    queries_by_wgmma<kDim>(work, b, g, lists, k_rows);
    for (const auto& list : lists) {
        keys_by_wgmma<kDim>(work, b, g, list, k_rows);
        b.writes.dk_dv = false;  // the next ones may have rows of these
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
