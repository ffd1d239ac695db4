// dK and dV of a tile of keys on tensor cores. A warp has 16 kBlocks keys and walks the queries that see them,
// head after head of its group: scores are computed transposed, keys × queries, so that p and ds are in
// registers as the products with dout and q want them.
#pragma once

#include "common/ops/cuda/attention/backward_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// kHeld: the warp's keys and values stay in registers; otherwise they are read from shared memory for every
// tile of queries.
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

template <int kDim>
struct KeysKernel {
    using Shape = KeysShape<kDim>;
    static constexpr int kBlocks = Shape::kBlocks;  // of sixteen keys a warp
    static constexpr int kThreads = Shape::kWarps * 32;
    static constexpr int kKeys = 16 * kBlocks * Shape::kWarps;
    static constexpr int kQueries = 32;
    static constexpr int kStages = 3;
    static constexpr int kSteps = kDim / 16;

    using KeyTile = MmaTile<kDim, kKeys>;
    using QueryTile = MmaTile<kDim, kQueries>;
    static constexpr int kStageBytes = 2 * QueryTile::kBytes;
    static constexpr int kStatisticsBytes = kQueries * static_cast<int>(sizeof(RowStatistics));
    static constexpr int kTilesBytes = 2 * KeyTile::kBytes + kStages * kStageBytes;
    static constexpr std::size_t kSharedBytes = kTileAlignment + kTilesBytes + kStages * kStatisticsBytes;
    static_assert(kSharedBytes <= kMostSharedBytes);

    using Scores = float[kBlocks][kQueries / 8][4];            // keys × queries
    using Weights = std::uint32_t[kBlocks][kQueries / 16][4];  // the same in bfloat16, to multiply with
    using Sums = float[kBlocks][kDim / 8][4];                  // keys × columns

    // Keys and values of a warp, to multiply with.
    struct Operands {
        std::uint32_t k[Shape::kHeld ? kSteps : 1][kBlocks][4];
        std::uint32_t v[Shape::kHeld ? kSteps : 1][kBlocks][4];

        // From this lane's row of the keys; that of the values lies KeyTile::kBytes further.
        __device__ __forceinline__ void load(SharedAddress row, int step, int to) {
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                const SharedAddress at = KeyTile::step(row, step, i);
                load_matrices(k[to][i], at);
                load_matrices(v[to][i], at + KeyTile::kBytes);
            }
        }
    };

    // Which tile of queries comes next: all of a head that see the keys, then the next head.
    struct Walk {
        int start, end;  // queries
        int first, head;
        int slot = 0;

        __device__ __forceinline__ void advance() {
            slot = slot + 1 == kStages ? 0 : slot + 1;
            first += kQueries;
            if (first < end) return;
            first = start;
            ++head;
        }
    };

    // This lane's row of its warp's keys.
    static __device__ __forceinline__ SharedAddress key_row(SharedAddress tiles, int thread) {
        return tiles + KeyTile::rows_as_a(thread % 32) + thread / 32 * kBlocks * 16 * KeyTile::kRowBytes;
    }

    // scores = k qᵀ and dp = v doutᵀ
    static __device__ __forceinline__ void multiply_rows(SharedAddress key, Operands& keys,
                                                         SharedAddress stage, Scores& scores, Scores& dp) {
        const int lane = static_cast<int>(opaque(threadIdx.x)) % 32;
        const SharedAddress rows = opaque(stage + QueryTile::rows_as_columns(lane));
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            const int at = Shape::kHeld ? step : 0;
            if (!Shape::kHeld) keys.load(key, step, 0);
#pragma unroll
            for (int n = 0; n < kQueries / 16; ++n) {
                const SharedAddress from = QueryTile::step(rows, step, n);
                std::uint32_t b[4];
                load_matrices(b, from);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(scores[i][2 * n], keys.k[at][i], b[0], b[1]);
                    multiply(scores[i][2 * n + 1], keys.k[at][i], b[2], b[3]);
                }
                load_matrices(b, from + QueryTile::kBytes);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(dp[i][2 * n], keys.v[at][i], b[0], b[1]);
                    multiply(dp[i][2 * n + 1], keys.v[at][i], b[2], b[3]);
                }
            }
        }
    }

    // p and ds; key `i` of the warp sees no query below hidden + i.
    static __device__ __forceinline__ void weigh(const Scores& scores, const Scores& dp,
                                                 const RowStatistics* statistics, float exponent_scale,
                                                 bool masked, int hidden, Weights& p, Weights& ds) {
        const int lane = static_cast<int>(opaque(threadIdx.x)) % 32;
        const int distance = hidden + lane / 4 - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kQueries / 8; ++n) {
            const Four two = load_four(&statistics[8 * n + lane % 4 * 2].lse);  // of two rows
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                float weight[4], gradient[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    weight[e] = probability(scores[i][n][e], exponent_scale, two.v[e % 2 * 2]);
                    if (masked && distance + 16 * i + e / 2 * 8 > 8 * n + e % 2) weight[e] = 0.0f;
                    gradient[e] = weight[e] * (dp[i][n][e] - two.v[e % 2 * 2 + 1]);
                }
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int to = n % 2 * 2 + half;
                    p[i][n / 2][to] = bfloat16_pair(weight[2 * half], weight[2 * half + 1]);
                    ds[i][n / 2][to] = bfloat16_pair(gradient[2 * half], gradient[2 * half + 1]);
                }
            }
        }
    }

    // dv += p dout and dk += ds q
    static __device__ __forceinline__ void add_products(const Weights& p, const Weights& ds,
                                                        SharedAddress stage, Sums& dk, Sums& dv) {
        const int lane = static_cast<int>(opaque(threadIdx.x)) % 32;
        const SharedAddress rows = opaque(stage + QueryTile::rows_as_b(lane));
#pragma unroll
        for (int step = 0; step < kQueries / 16; ++step) {
#pragma unroll
            for (int n = 0; n < kDim / 16; ++n) {
                const SharedAddress from = QueryTile::step(rows, n, step);
                std::uint32_t b[4];
                load_matrices_transposed(b, from + QueryTile::kBytes);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(dv[i][2 * n], p[i][step], b[0], b[1]);
                    multiply(dv[i][2 * n + 1], p[i][step], b[2], b[3]);
                }
                load_matrices_transposed(b, from);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(dk[i][2 * n], ds[i][step], b[0], b[1]);
                    multiply(dk[i][2 * n + 1], ds[i][step], b[2], b[3]);
                }
            }
        }
    }
};

// Grid: (tile of keys, kv head); with a causal mask the first tiles have the most queries.
template <int kDim>
__global__ void __launch_bounds__(KeysKernel<kDim>::kThreads, KeysShape<kDim>::kBlocksOfSm)
    keys_mma_kernel(const __grid_constant__ BackwardInputs b) {
    using Kernel = KeysKernel<kDim>;
    using QueryTile = typename Kernel::QueryTile;
    constexpr int kThreads = Kernel::kThreads, kKeys = Kernel::kKeys, kQueries = Kernel::kQueries;
    constexpr int kStages = Kernel::kStages, kBlocks = Kernel::kBlocks;
    TANDEM_DYNAMIC_SHARED(memory);
    const SharedAddress tiles = first_tile(memory);
    const SharedAddress stages = tiles + 2 * Kernel::KeyTile::kBytes;
    const SharedAddress statistics = tiles + Kernel::kTilesBytes;

    // What the block works on.
    const int head_dim = static_cast<int>(b.in.head_dim);
    const int kv_head = static_cast<int>(blockIdx.x % b.in.kv_heads);
    const BackwardPlace place = backward_place(b, blockIdx.x / b.in.kv_heads);
    const DeviceSegment& s = place.segment;
    const int q_len = static_cast<int>(s.q_len), k_len = static_cast<int>(s.k_len), ahead = k_len - q_len;
    const int key = static_cast<int>(place.tile) * kKeys;
    const int keys = k_len - key < kKeys ? k_len - key : kKeys;
    const int seen_from = static_cast<int>(shared::first_query(key, s.q_len, s.k_len, s.causal));
    const int start = seen_from / kQueries * kQueries;
    const int turns = (q_len - start + kQueries - 1) / kQueries * static_cast<int>(b.in.group);

    // Its keys and values.
    const auto row_bytes = [&](std::int64_t heads) {
        return static_cast<std::uint32_t>(heads * head_dim * 2);
    };
    TileLoader<kDim, kKeys, kThreads>::load(
        tiles, head_row(b.in.k.data, s.k_begin + key, kv_head, b.in.kv_heads, head_dim),
        row_bytes(b.in.kv_heads), keys, head_dim);
    TileLoader<kDim, kKeys, kThreads>::load(
        tiles + Kernel::KeyTile::kBytes,
        head_row(b.in.v.data, s.k_begin + key, kv_head, b.in.kv_heads, head_dim), row_bytes(b.in.kv_heads),
        keys, head_dim);
    commit_ahead();

    // Tiles of queries on their way, kStages - 1 of them at a time.
    const int first_head = kv_head * static_cast<int>(b.in.group);
    typename Kernel::Walk next{start, q_len, start, first_head};
    int left = turns;
    const auto load_next = [&] {
        if (left > 0) {
            const SharedAddress to = stages + next.slot * Kernel::kStageBytes;
            const std::int64_t row = s.q_begin + next.first;
            TileLoader<kDim, kQueries, kThreads>::load(
                to, head_row(b.in.q.data, row, next.head, b.in.heads, head_dim), row_bytes(b.in.heads),
                q_len - next.first, head_dim);
            TileLoader<kDim, kQueries, kThreads>::load(
                to + QueryTile::kBytes, head_row(b.dout, row, next.head, b.in.heads, head_dim),
                row_bytes(b.in.heads), q_len - next.first, head_dim);
            if (threadIdx.x < kQueries / 2) {
                copy_ahead(statistics + next.slot * Kernel::kStatisticsBytes + threadIdx.x * 16,
                           b.statistics + next.head * b.padded_rows + place.padded_begin + next.first +
                               threadIdx.x * 2);
            }
            next.advance();
            --left;
        }
        commit_ahead();
    };
#pragma unroll
    for (int i = 0; i + 1 < kStages; ++i) load_next();

    const int warp_key = static_cast<int>(threadIdx.x) / 32 * kBlocks * 16;  // of the tile
    typename Kernel::Operands operands;
    const SharedAddress row = Kernel::key_row(tiles, static_cast<int>(threadIdx.x));
    if constexpr (KeysShape<kDim>::kHeld) {
        wait_ahead<kStages - 1>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < Kernel::kSteps; ++step) operands.load(row, step, step);
    }
    typename Kernel::Sums dk = {}, dv = {};
    typename Kernel::Walk now{start, q_len, start, first_head};
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
        wait_ahead<kStages - 2>();
        __syncthreads();  // this turn's tile is there for all, and all are done with the one before
        load_next();
        const SharedAddress stage = stages + now.slot * Kernel::kStageBytes;
        typename Kernel::Scores scores = {}, dp = {};
        Kernel::multiply_rows(row, operands, stage, scores, dp);
        const auto* const rows = reinterpret_cast<const RowStatistics*>(
            memory + (statistics - shared_address(memory)) + now.slot * Kernel::kStatisticsBytes);
        const bool masked = s.causal && key + kKeys - 1 > now.first + ahead;
        const int hidden =
            key + static_cast<int>(opaque(threadIdx.x)) / 32 * kBlocks * 16 - ahead - now.first;
        typename Kernel::Weights p, ds;
        Kernel::weigh(scores, dp, rows, b.exponent_scale, masked, hidden, p, ds);
        Kernel::add_products(p, ds, stage, dk, dv);
        now.advance();
    }
    wait_ahead<0>();

#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        add_sums<kDim>(b.dk, s.k_begin + key, warp_key + 16 * i, keys, kv_head, b.in.kv_heads, head_dim,
                       b.in.scale, dk[i]);
        add_sums<kDim>(b.dv, s.k_begin + key, warp_key + 16 * i, keys, kv_head, b.in.kv_heads, head_dim, 1.0f,
                       dv[i]);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
