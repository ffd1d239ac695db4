// dQ of a tile of queries on tensor cores. A warp has 16 kBlocks queries and walks the keys that they see;
// scores are queries × keys, so that ds is in registers as the product with the keys wants it.
#pragma once

#include <algorithm>

#include "common/ops/cuda/attention/backward_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// What is held of the warp's queries and gradients stays in registers; the rest is read from shared memory for
// every tile of keys.
template <int kDim>
struct QueriesShape {
    static constexpr int kBlocks = 2, kWarps = 4, kBlocksOfSm = 2;
    static constexpr bool kQueriesHeld = kDim == 64, kGradientsHeld = kDim == 64;
};
template <>
struct QueriesShape<256> {
    static constexpr int kBlocks = 1, kWarps = 8, kBlocksOfSm = 1;
    static constexpr bool kQueriesHeld = true, kGradientsHeld = false;
};

template <int kDim>
struct QueriesKernel {
    using Shape = QueriesShape<kDim>;
    static constexpr int kBlocks = Shape::kBlocks;  // of sixteen queries a warp
    static constexpr int kThreads = Shape::kWarps * 32;
    static constexpr int kQueries = 16 * kBlocks * Shape::kWarps;
    static constexpr int kKeys = 32;
    static constexpr int kStages = 2;
    static constexpr int kSteps = kDim / 16;
    static constexpr bool kQueriesHeld = Shape::kQueriesHeld, kGradientsHeld = Shape::kGradientsHeld;

    using QueryTile = MmaTile<kDim, kQueries>;
    using KeyTile = MmaTile<kDim, kKeys>;
    static constexpr int kStageBytes = 2 * KeyTile::kBytes;
    // Stages, then queries and gradients. Where gradients are not held, held queries lie in the second stage
    // until they are.
    static constexpr int kQueriesAt = (kQueriesHeld && !kGradientsHeld ? 1 : kStages) * kStageBytes;
    static constexpr int kTilesBytes = std::max(kStages * kStageBytes, kQueriesAt + 2 * QueryTile::kBytes);
    static constexpr std::size_t kSharedBytes =
        kTileAlignment + kTilesBytes + kQueries * sizeof(RowStatistics);
    static_assert(kSharedBytes <= kMostSharedBytes);

    using Scores = float[kBlocks][kKeys / 8][4];            // queries × keys
    using Weights = std::uint32_t[kBlocks][kKeys / 16][4];  // the same in bfloat16, to multiply with
    using Sums = float[kBlocks][kDim / 8][4];               // queries × columns

    // Queries and gradients of a warp, to multiply with: of all steps where they are held, else of one.
    struct Operands {
        std::uint32_t q[kQueriesHeld ? kSteps : 1][kBlocks][4];
        std::uint32_t dout[kGradientsHeld ? kSteps : 1][kBlocks][4];

        // From this lane's row of the queries; that of the gradients lies QueryTile::kBytes further.
        __device__ __forceinline__ void load_queries(SharedAddress row, int step) {
#pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                load_matrices(q[kQueriesHeld ? step : 0][i], QueryTile::step(row, step, i));
        }
        __device__ __forceinline__ void load_gradients(SharedAddress row, int step) {
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                load_matrices(dout[kGradientsHeld ? step : 0][i],
                              QueryTile::step(row, step, i) + QueryTile::kBytes);
            }
        }
    };

    // scores = q kᵀ and dp = dout vᵀ
    static __device__ __forceinline__ void multiply_rows(SharedAddress query, Operands& queries,
                                                         SharedAddress stage, Scores& scores, Scores& dp) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
        const SharedAddress rows = opaque(stage + KeyTile::rows_as_columns(lane));
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            if (!kQueriesHeld) queries.load_queries(query, step);
            if (!kGradientsHeld) queries.load_gradients(query, step);
            const auto& q = queries.q[kQueriesHeld ? step : 0];
            const auto& dout = queries.dout[kGradientsHeld ? step : 0];
#pragma unroll
            for (int n = 0; n < kKeys / 16; ++n) {
                const SharedAddress from = KeyTile::step(rows, step, n);
                std::uint32_t b[4];
                load_matrices(b, from);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(scores[i][2 * n], q[i], b[0], b[1]);
                    multiply(scores[i][2 * n + 1], q[i], b[2], b[3]);
                }
                load_matrices(b, from + KeyTile::kBytes);
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(dp[i][2 * n], dout[i], b[0], b[1]);
                    multiply(dp[i][2 * n + 1], dout[i], b[2], b[3]);
                }
            }
        }
    }

    // ds; query `i` of the warp sees the keys of the tile below seen + i, and below `keys`.
    static __device__ __forceinline__ void weigh(const Scores& scores, const Scores& dp,
                                                 const RowStatistics* statistics, float exponent_scale,
                                                 bool masked, int seen, int keys, Weights& ds) {
        const int thread = static_cast<int>(opaque(threadIdx.x)), lane = thread % 32;
        const int column = lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const RowStatistics row = statistics[(thread / 32 * kBlocks + i) * 16 + half * 8 + lane / 4];
                const int mine = seen + 16 * i + 8 * half + lane / 4;
                const int end = (mine < keys ? mine : keys) - column;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n) {
                    float gradient[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float p = probability(scores[i][n][2 * half + e], exponent_scale, row.lse);
                        if (masked && 8 * n + e >= end) p = 0.0f;
                        gradient[e] = p * (dp[i][n][2 * half + e] - row.delta);
                    }
                    ds[i][n / 2][n % 2 * 2 + half] = bfloat16_pair(gradient[0], gradient[1]);
                }
            }
        }
    }

    // dq += ds k
    static __device__ __forceinline__ void add_products(const Weights& ds, SharedAddress stage, Sums& dq) {
        const int lane = static_cast<int>(opaque(threadIdx.x) % 32);
        const SharedAddress rows = opaque(stage + KeyTile::rows_as_b(lane));
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step) {
#pragma unroll
            for (int n = 0; n < kDim / 16; ++n) {
                std::uint32_t b[4];
                load_matrices_transposed(b, KeyTile::step(rows, n, step));
#pragma unroll
                for (int i = 0; i < kBlocks; ++i) {
                    multiply(dq[i][2 * n], ds[i][step], b[0], b[1]);
                    multiply(dq[i][2 * n + 1], ds[i][step], b[2], b[3]);
                }
            }
        }
    }
};

// What block `block` works on.
template <int kDim>
struct QueriesBlock {
    int head;
    BackwardPlace place;
    int first, rows;  // queries of the segment

    __device__ __forceinline__ QueriesBlock(const BackwardInputs& b, std::int64_t tiles, std::uint32_t block)
        : head(static_cast<int>(block % b.in.heads)),
          place(backward_place(b, tiles - 1 - block / b.in.heads)),
          first(static_cast<int>(place.tile) * QueriesKernel<kDim>::kQueries) {
        const int left = static_cast<int>(place.segment.q_len) - first;
        rows = left < QueriesKernel<kDim>::kQueries ? left : QueriesKernel<kDim>::kQueries;
    }
};

// Grid: (tile of queries, head); the tiles with the most keys, a segment's last, come first.
template <int kDim>
__global__ void __launch_bounds__(QueriesKernel<kDim>::kThreads, QueriesShape<kDim>::kBlocksOfSm)
    queries_mma_kernel(const __grid_constant__ BackwardInputs b, const __grid_constant__ std::int64_t tiles) {
    using Kernel = QueriesKernel<kDim>;
    using QueryTile = typename Kernel::QueryTile;
    using KeyTile = typename Kernel::KeyTile;
    constexpr int kThreads = Kernel::kThreads, kKeys = Kernel::kKeys, kQueries = Kernel::kQueries;
    constexpr int kStages = Kernel::kStages, kBlocks = Kernel::kBlocks;
    constexpr bool kQueriesHeld = Kernel::kQueriesHeld, kGradientsHeld = Kernel::kGradientsHeld;
    TANDEM_DYNAMIC_SHARED(memory);
    const SharedAddress stages = first_tile(memory);
    const SharedAddress queries = stages + Kernel::kQueriesAt;
    __shared__ const std::byte *first_key, *first_value;  // there are no registers to keep them in

    const int head_dim = static_cast<int>(b.in.head_dim);
    const QueriesBlock<kDim> block(b, tiles, blockIdx.x);
    const DeviceSegment& s = block.place.segment;
    const int head = block.head, first = block.first, rows = block.rows;
    const int k_len = static_cast<int>(s.k_len);
    const int last = static_cast<int>(shared::visible_keys(first + rows - 1, s.q_len, s.k_len, s.causal));

    // Its queries and gradients, and the first tile of keys and values.
    const auto q_row_bytes = static_cast<std::uint32_t>(b.in.heads * head_dim * 2);
    const auto k_row_bytes = static_cast<std::uint32_t>(b.in.kv_heads * head_dim * 2);
    using QueryLoader = TileLoader<kDim, kQueries, kThreads>;
    QueryLoader::load(queries, head_row(b.in.q.data, s.q_begin + first, head, b.in.heads, head_dim),
                      q_row_bytes, rows, head_dim);
    QueryLoader::load(queries + QueryTile::kBytes,
                      head_row(b.dout, s.q_begin + first, head, b.in.heads, head_dim), q_row_bytes, rows,
                      head_dim);
    if (threadIdx.x == 0) {
        const auto first_row = [&](const Elements& rows) {
            return head_row(rows.data, s.k_begin, head / static_cast<int>(b.in.group), b.in.kv_heads,
                            head_dim);
        };
        first_key = first_row(b.in.k);
        first_value = first_row(b.in.v);
    }
    __syncthreads();
    const auto load_keys = [&](int key, int slot) {
        using Loader = TileLoader<kDim, kKeys, kThreads>;
        const SharedAddress to = stages + slot * Kernel::kStageBytes;
        const std::int64_t at = static_cast<std::int64_t>(key) * k_row_bytes;
        Loader::load(to, first_key + at, k_row_bytes, k_len - key, head_dim);
        Loader::load(to + KeyTile::kBytes, first_value + at, k_row_bytes, k_len - key, head_dim);
    };
    if (last > 0) load_keys(0, 0);
    if (threadIdx.x < kQueries / 2) {
        copy_ahead(stages + Kernel::kTilesBytes + threadIdx.x * 16,
                   b.statistics + head * b.padded_rows + block.place.padded_begin + first + threadIdx.x * 2);
    }
    commit_ahead();
    const auto* const statistics = reinterpret_cast<const RowStatistics*>(
        memory + (stages - shared_address(memory)) + Kernel::kTilesBytes);

    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp_row = static_cast<int>(threadIdx.x / 32) * kBlocks * 16;  // of the tile
    const SharedAddress query =
        queries + QueryTile::rows_as_a(lane) + static_cast<SharedAddress>(warp_row * QueryTile::kRowBytes);

    typename Kernel::Operands operands;
    if constexpr (kQueriesHeld) {
        wait_ahead<0>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < Kernel::kSteps; ++step) {
            operands.load_queries(query, step);
            if constexpr (kGradientsHeld) operands.load_gradients(query, step);
        }
    }
    // Keys that the warp's first row sees; without a mask, more than there are.
    const int warp_last = s.causal ? first + warp_row + k_len - static_cast<int>(s.q_len) + 1 : last + kKeys;

    typename Kernel::Sums dq = {};
    // A turn uses the keys before `next`; all is counted from there, so that one position is kept and not two.
#pragma unroll 1
    for (int next = kKeys; next < last + kKeys; next += kKeys) {
        wait_ahead<kStages - 2>();
        __syncthreads();  // this turn's tile is there for all, and all are done with the one before
        const int turn = next / kKeys;
        const SharedAddress stage = stages + (turn - 1) % kStages * Kernel::kStageBytes;
        if (next < last) {
            load_keys(next, turn % kStages);
            commit_ahead();
        }
        const int seen = warp_last + kKeys - next;
        if (seen <= 1 - 16 * kBlocks) continue;  // by none of the warp's rows
        typename Kernel::Scores scores = {}, dp = {};
        Kernel::multiply_rows(opaque(query), operands, stage, scores, dp);
        typename Kernel::Weights ds;
        Kernel::weigh(scores, dp, statistics, b.exponent_scale, seen < kKeys || k_len < next, seen,
                      k_len + kKeys - next, ds);
        Kernel::add_products(ds, stage, dq);
    }
    if constexpr (!kQueriesHeld) wait_ahead<0>();  // of queries that see no key

    // Looked up again rather than kept in registers.
    const QueriesBlock<kDim> done(b, tiles, opaque(blockIdx.x));
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        add_sums<kDim>(b.dq, done.place.segment.q_begin + done.first,
                       static_cast<int>(threadIdx.x / 32) * kBlocks * 16 + 16 * i, done.rows, done.head,
                       b.in.heads, static_cast<int>(b.in.head_dim), b.writes.dq, b.in.scale, dq[i]);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
