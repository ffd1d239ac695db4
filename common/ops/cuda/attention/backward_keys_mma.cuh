// dK and dV of a tile of keys on tensor cores. A warp has 16 kBlocks keys and walks the queries that see them,
// head after head of its group: scores are computed transposed, keys × queries, so that p and ds are in
// registers as the products with dout and q want them. The sums of heads above 128 fit no block's registers
// together: two launches make one each, and both compute the scores.
#pragma once

#include <algorithm>

#include "common/ops/cuda/attention/backward_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

enum class KeyGradients { both, dv, dk };  // what a launch makes

// kHeld: the warp's keys and values (its keys alone where a launch makes one gradient) stay in registers;
// otherwise they are read from shared memory for every tile of queries.
template <int kDim>
struct KeysShape {
    static constexpr int kBlocks = 1, kWarps = 8, kBlocksOfSm = 1;
    static constexpr bool kHeld = true;
};
template <>
struct KeysShape<64> {
    static constexpr int kBlocks = 2, kWarps = 4, kBlocksOfSm = 2;
    static constexpr bool kHeld = false;
};

template <int kDim, KeyGradients kMakes>
struct KeysKernel {
    using Shape = KeysShape<kDim>;
    static constexpr bool kMakesDv = kMakes != KeyGradients::dk, kMakesDk = kMakes != KeyGradients::dv;
    static constexpr bool kKeysHeld = Shape::kHeld;
    static constexpr bool kValuesHeld = kKeysHeld && kMakes == KeyGradients::both;
    static constexpr int kBlocks = Shape::kBlocks;  // of sixteen keys a warp
    static constexpr int kThreads = Shape::kWarps * 32;
    static constexpr int kKeys = 16 * kBlocks * Shape::kWarps;
    // Of a stage: as many as leave room for values that are not held.
    static constexpr int kQueries = kMakes == KeyGradients::dk                 ? 32
                                    : kMakes == KeyGradients::dv || !kKeysHeld ? 64
                                                                               : 128;
    static constexpr int kTurn = 32;  // of them, scored together
    static constexpr int kSteps = kDim / 16;

    using KeyTile = MmaTile<kDim, kKeys>;
    using QueryTile = MmaTile<kDim, kQueries>;
    static constexpr int kStageBytes = 2 * QueryTile::kBytes;
    static constexpr int kStatisticsBytes = kQueries * static_cast<int>(sizeof(RowStatistics));
    // Two stages, then keys and, for dK, values; those that are held lie in the second stage until they are.
    static constexpr int kKeysAt = (kKeysHeld ? 1 : 2) * kStageBytes;
    static constexpr int kTilesBytes =
        std::max(2 * kStageBytes, kKeysAt + (kMakesDk ? 2 : 1) * KeyTile::kBytes);
    static constexpr std::size_t kSharedBytes = kTileAlignment + kTilesBytes + 2 * kStatisticsBytes;
    static_assert(kSharedBytes <= kMostSharedBytes);

    using Scores = float[kBlocks][kTurn / 8][4];  // keys × queries
    using Sums = float[kBlocks][kDim / 8][4];     // keys × columns

    // A warp's keys or values, to multiply with; nothing where they are not held.
    template <bool kHeld>
    using Held = std::uint32_t[kHeld ? kSteps : 1][kBlocks][4];

    // This lane's row of its warp's keys.
    static __device__ __forceinline__ SharedAddress key_row(SharedAddress tiles, int thread) {
        return tiles + KeyTile::rows_as_a(thread % 32) + thread / 32 * kBlocks * 16 * KeyTile::kRowBytes;
    }

    // From this lane's row of the warp's keys or values.
    static __device__ __forceinline__ void load_step(SharedAddress row, int step,
                                                     std::uint32_t (&operands)[kBlocks][4]) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) load_matrices(operands[i], KeyTile::step(row, step, i));
    }

    // scores = k qᵀ, or v doutᵀ: of the keys or values that are held or lie at `key`, and the rows at `stage`.
    template <bool kHeld>
    static __device__ __forceinline__ void multiply_rows(const Held<kHeld>& held, SharedAddress key,
                                                         SharedAddress stage, Scores& scores) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
        const SharedAddress rows = opaque(stage + QueryTile::rows_as_columns(lane));
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            std::uint32_t loaded[kBlocks][4];
            if (!kHeld) load_step(key, step, loaded);
            const auto& a = kHeld ? held[kHeld ? step : 0] : loaded;
#pragma unroll
            for (int n = 0; n < kTurn / 16; ++n) {
                std::uint32_t b[4];
                load_matrices(b, QueryTile::step(rows, step, n));
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(scores[i][2 * n], a[i], b[0], b[1]);
                    multiply(scores[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    // Scores become p; key `i` of the warp sees no query below hidden + i.
    static __device__ __forceinline__ void weigh(const RowStatistics* statistics, float exponent_scale,
                                                 bool masked, int hidden, Scores& scores) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
        const int distance = hidden + lane / 4 - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kTurn / 8; ++n) {
            const Four two = load_four(&statistics[8 * n + lane % 4 * 2].lse);  // of two rows
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float& p = scores[i][n][e];
                    p = probability(p, exponent_scale, two.v[e % 2 * 2]);
                    if (masked && distance + 16 * i + e / 2 * 8 > 8 * n + e % 2) p = 0.0f;
                }
            }
        }
    }

    // dp becomes ds.
    static __device__ __forceinline__ void weigh_gradients(const RowStatistics* statistics, const Scores& p,
                                                           Scores& dp) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
#pragma unroll
        for (int n = 0; n < kTurn / 8; ++n) {
            const Four two = load_four(&statistics[8 * n + lane % 4 * 2].lse);
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) dp[i][n][e] = p[i][n][e] * (dp[i][n][e] - two.v[e % 2 * 2 + 1]);
            }
        }
    }

    // sums += weights rows
    static __device__ __forceinline__ void add_products(const Scores& weights, SharedAddress stage,
                                                        Sums& sums) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
        const SharedAddress rows = opaque(stage + QueryTile::rows_as_b(lane));
#pragma unroll
        for (int step = 0; step < kTurn / 16; ++step) {
            std::uint32_t a[kBlocks][4];
#pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                as_operand(weights[i][2 * step], weights[i][2 * step + 1], a[i]);
#pragma unroll
            for (int n = 0; n < kDim / 16; ++n) {
                std::uint32_t b[4];
                load_matrices_transposed(b, QueryTile::step(rows, n, step));
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(sums[i][2 * n], a[i], b[0], b[1]);
                    multiply(sums[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
};

// What block `block` works on.
template <int kKeys>
struct KeysBlock {
    int kv_head;
    BackwardPlace place;
    int first, keys;  // of the segment

    __device__ __forceinline__ KeysBlock(const BackwardInputs& b, std::uint32_t block)
        : kv_head(static_cast<int>(block % b.in.kv_heads)),
          place(backward_place(b, block / b.in.kv_heads)),
          first(static_cast<int>(place.tile) * kKeys) {
        const int left = static_cast<int>(place.segment.k_len) - first;
        keys = left < kKeys ? left : kKeys;
    }
};

// Grid: (tile of keys, kv head); with a causal mask the first tiles have the most queries.
template <int kDim, KeyGradients kMakes>
__global__ void __launch_bounds__(KeysKernel<kDim, kMakes>::kThreads, KeysShape<kDim>::kBlocksOfSm)
    keys_mma_kernel(const __grid_constant__ BackwardInputs b) {
    using Kernel = KeysKernel<kDim, kMakes>;
    using QueryTile = typename Kernel::QueryTile;
    constexpr int kThreads = Kernel::kThreads, kKeys = Kernel::kKeys, kQueries = Kernel::kQueries;
    constexpr int kBlocks = Kernel::kBlocks;
    TANDEM_DYNAMIC_SHARED(memory);
    const SharedAddress stages = first_tile(memory);
    const SharedAddress tiles = stages + Kernel::kKeysAt;
    const SharedAddress statistics = stages + Kernel::kTilesBytes;

    __shared__ std::int64_t q_begin, padded_begin;  // there are no registers to keep them in
    // Queries before this one do not see the block's first key; without a mask, far before all.
    const int head_dim = static_cast<int>(b.in.head_dim);
    const KeysBlock<kKeys> block(b, blockIdx.x);
    const BackwardPlace& place = block.place;
    const DeviceSegment& s = place.segment;
    const int kv_head = block.kv_head, key = block.first, keys = block.keys;
    const int q_len = static_cast<int>(s.q_len);
    const int first_hidden = s.causal ? key - static_cast<int>(s.k_len - s.q_len) : -(1 << 30);
    const int seen_from = static_cast<int>(shared::first_query(key, s.q_len, s.k_len, s.causal));
    const int start = seen_from / kQueries * kQueries;
    const int stage_count = (q_len - start + kQueries - 1) / kQueries * static_cast<int>(b.in.group);

    if (threadIdx.x == 0) {
        q_begin = s.q_begin;
        padded_begin = place.padded_begin;
    }
    __syncthreads();

    // Its keys and values.
    const auto row_bytes = [&](std::int64_t heads) {
        return static_cast<std::uint32_t>(heads * head_dim * 2);
    };
    TileLoader<kDim, kKeys, kThreads>::load(
        tiles, head_row(b.in.k.data, s.k_begin + key, kv_head, b.in.kv_heads, head_dim),
        row_bytes(b.in.kv_heads), keys, head_dim);
    if constexpr (Kernel::kMakesDk) {
        TileLoader<kDim, kKeys, kThreads>::load(
            tiles + Kernel::KeyTile::kBytes,
            head_row(b.in.v.data, s.k_begin + key, kv_head, b.in.kv_heads, head_dim),
            row_bytes(b.in.kv_heads), keys, head_dim);
    }
    if constexpr (Kernel::kKeysHeld) commit_ahead();

    // Which queries come next: all of a head that see the keys, then the next head. While one stage is used
    // the other one is loaded.
    int next = start, head = kv_head * static_cast<int>(b.in.group);
    const auto load_stage = [&](int stage) {
        const SharedAddress to = stages + stage * Kernel::kStageBytes;
        const std::int64_t row = q_begin + next;
        TileLoader<kDim, kQueries, kThreads>::load(to, head_row(b.in.q.data, row, head, b.in.heads, head_dim),
                                                   row_bytes(b.in.heads), q_len - next, head_dim);
        TileLoader<kDim, kQueries, kThreads>::load(to + QueryTile::kBytes,
                                                   head_row(b.dout, row, head, b.in.heads, head_dim),
                                                   row_bytes(b.in.heads), q_len - next, head_dim);
        const int pair = static_cast<int>(opaque(threadIdx.x));
        if (pair < kQueries / 2) {
            copy_ahead(statistics + stage * Kernel::kStatisticsBytes + pair * 16,
                       b.statistics + (head * b.padded_rows + padded_begin + next) + pair * 2);
        }
        commit_ahead();
    };
    load_stage(0);  // at least the last query sees a key

    const SharedAddress row = Kernel::key_row(tiles, static_cast<int>(threadIdx.x));
    typename Kernel::template Held<Kernel::kKeysHeld> k;
    [[maybe_unused]] typename Kernel::template Held<Kernel::kValuesHeld> v;
    if constexpr (Kernel::kKeysHeld) {
        wait_ahead<1>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < Kernel::kSteps; ++step) {
            Kernel::load_step(row, step, k[step]);
            if constexpr (Kernel::kValuesHeld)
                Kernel::load_step(row + Kernel::KeyTile::kBytes, step, v[step]);
        }
    }
    [[maybe_unused]] typename Kernel::Sums dk = {}, dv = {};
#pragma unroll 1
    for (int n = 0; n < stage_count; ++n) {
        wait_ahead<0>();
        __syncthreads();  // this stage is there for all, and all are done with the one before
        const int stage = n % 2, first_of_stage = next;
        next += kQueries;
        if (next >= q_len) {
            next = start;
            ++head;
        }
        if (n + 1 < stage_count) load_stage(1 - stage);
#pragma unroll 1
        for (int turn = 0; turn < kQueries; turn += Kernel::kTurn) {
            const int first = first_of_stage + turn;
            if (first + Kernel::kTurn <= seen_from) continue;
            if (first >= q_len) break;
            const SharedAddress queries = stages + stage * Kernel::kStageBytes + turn * QueryTile::kRowBytes;
            const auto* const rows =
                reinterpret_cast<const RowStatistics*>(memory + (statistics - shared_address(memory)) +
                                                       stage * Kernel::kStatisticsBytes) +
                turn;
            const bool masked = first_hidden + kKeys - 1 > first;
            const int hidden =
                first_hidden + static_cast<int>(opaque(threadIdx.x) / 32) * kBlocks * 16 - first;
            typename Kernel::Scores scores = {};
            [[maybe_unused]] typename Kernel::Scores dp = {};
            Kernel::template multiply_rows<Kernel::kKeysHeld>(k, row, queries, scores);
            Kernel::weigh(rows, b.exponent_scale, masked, hidden, scores);
            if constexpr (Kernel::kMakesDk) {
                Kernel::template multiply_rows<Kernel::kValuesHeld>(v, row + Kernel::KeyTile::kBytes,
                                                                    queries + QueryTile::kBytes, dp);
            }
            if constexpr (Kernel::kMakesDv) {
                Kernel::add_products(scores, queries + QueryTile::kBytes, dv);
            }
            if constexpr (Kernel::kMakesDk) {
                Kernel::weigh_gradients(rows, scores, dp);
                Kernel::add_products(dp, queries, dk);
            }
        }
    }

    // Looked up again rather than kept in registers.
    const KeysBlock<kKeys> done(b, opaque(blockIdx.x));
    const std::int64_t begin = done.place.segment.k_begin + done.first;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        const int row = (static_cast<int>(threadIdx.x / 32) * kBlocks + i) * 16;
        if constexpr (Kernel::kMakesDk) {
            add_sums<kDim>(b.dk, begin, row, done.keys, done.kv_head, b.in.kv_heads, b.in.head_dim,
                           b.writes.dk_dv, b.in.scale, dk[i]);
        }
        if constexpr (Kernel::kMakesDv) {
            add_sums<kDim>(b.dv, begin, row, done.keys, done.kv_head, b.in.kv_heads, b.in.head_dim,
                           b.writes.dk_dv, 1.0f, dv[i]);
        }
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
