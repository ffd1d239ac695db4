// Flash attention, forward, on tensor cores (Dao, "FlashAttention-2"): a block has some queries of one head,
// each warp 16 or 32 of them, and walks over their keys, kKeys at a time, while the next ones are on their
// way. row_law.cuh says what it computes. In shared memory: the queries, and kStages tiles of keys and values;
// in registers: a warp's scores, which become the weights of its values without leaving their lanes, and sums.
#pragma once

#include <type_traits>

#include "common/ops/cuda/attention/paged_rows.cuh"
#include "common/ops/cuda/attention/parking.cuh"
#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/attention/segments.cuh"
#include "common/ops/cuda/attention/tile_mma.cuh"
#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// kSlices: 16 rows each, of a warp. Two of them halve what shared memory is read for a product.
template <int kDim_, int kKeys_, int kWarps_, int kSlices_, int kStages_, int kBlocks_>
struct ForwardShapeOf {
    static constexpr int kDim = kDim_, kKeys = kKeys_, kWarps = kWarps_, kSlices = kSlices_,
                         kStages = kStages_;
    static constexpr int kBlocks = kBlocks_;  // of an SM
    static constexpr int kThreads = 32 * kWarps;
    static constexpr int kRows = 16 * kSlices * kWarps;
    using Queries = MmaTile<kDim, kRows>;
    using Keys = MmaTile<kDim, kKeys>;
    static constexpr std::size_t kBytes = Queries::kBytes + kStages * 2 * Keys::kBytes + kTileAlignment;
    static constexpr std::int64_t kPlaceQuads = kThreads * kSlices * (kDim / 8 + 1);
    static_assert(kBytes <= kMostSharedBytes);
};
template <int kDim, int kKeys>
using ForwardShape = std::conditional_t<
    kKeys == 128, ForwardShapeOf<kDim, 128, 8, 1, 2, 1>,
    ForwardShapeOf<kDim, 64, 4, kDim == 256 ? 1 : 2, kDim == 64 ? 3 : 2, kDim == 256 ? 1 : 2>>;

// What a launch is about.
struct ForwardWork {
    AttentionInputs in;
    std::int64_t tiles;
    float c;  // see row_law.cuh
    ForwardOut out;
    float* lse;  // or none
    Parking parking;
    const std::int32_t* pages;  // of paged keys; a segment's from its k_begin on
    shared::Divider page;
};

// What a block computes: some rows of a segment, the last of which sees keys in key_tiles tiles.
struct ForwardTile {
    std::int64_t q_row;  // the first one, in q
    int rows, key_tiles;
    int first_seen;  // keys that the first row sees, if there are so many; below 0 where a later row is the first
    int step;        // keys that each row sees more than the row before: 1, or 0
    int k_len;

    __device__ int seen(int row) const {
        const int seen = first_seen + row * step;
        return seen < k_len ? seen : k_len;
    }
};

__device__ __forceinline__ ForwardTile forward_tile(const TilePlace& place, int tile_rows, int tile_keys) {
    const DeviceSegment& s = place.segment;
    const std::int64_t first = place.tile * tile_rows;
    const std::int64_t rows = s.q_len - first < tile_rows ? s.q_len - first : tile_rows;
    const std::int64_t visible = shared::visible_keys(first + rows - 1, s.q_len, s.k_len, s.causal);
    return {s.q_begin + first,
            static_cast<int>(rows),
            static_cast<int>((visible + tile_keys - 1) / tile_keys),
            static_cast<int>(s.causal ? first + s.k_len - s.q_len + 1 : s.k_len),
            static_cast<int>(s.causal),
            static_cast<int>(s.k_len)};
}

// The keys and values of a head of a segment, as they lie in packed tensors.
template <int kDim, int kKeys, int kThreads>
struct PackedKeys {
    using Loader = TileLoader<kDim, kKeys, kThreads>;
    const std::byte *k, *v;  // of the first key
    int k_len, head_dim;     // no padding: it is copied whole

    __device__ static PackedKeys of(const ForwardWork& work, const DeviceSegment& s, std::int64_t kv_head) {
        const AttentionInputs& in = work.in;
        const std::int64_t first = (s.k_begin * in.kv_heads + kv_head) * in.head_dim * 2;
        return {in.k.data + first, in.v.data + first, static_cast<int>(s.k_len),
                static_cast<int>(in.head_dim)};
    }
    __device__ __forceinline__ void load(const ForwardWork& work, SharedAddress keys, SharedAddress values,
                                         int tile) const {
        const auto row_bytes =
            static_cast<std::uint32_t>(work.in.kv_heads) * static_cast<std::uint32_t>(work.in.head_dim) * 2;
        const std::int64_t first = static_cast<std::int64_t>(tile) * kKeys * row_bytes;
        const int count = k_len - tile * kKeys;
        Loader::load(keys, k + first, row_bytes, count, head_dim);
        Loader::load(values, v + first, row_bytes, count, head_dim);
    }
};

// The same in the pages of a cache.
template <int kDim, int kKeys, int kThreads>
struct PagedKeys {
    PagedRows rows;

    __device__ static PagedKeys of(const ForwardWork& work, const DeviceSegment& s, std::int64_t kv_head) {
        const AttentionInputs& in = work.in;
        const std::int64_t first = kv_head * in.head_dim * 2;
        return {{in.k.data + first, in.v.data + first, work.pages + s.k_begin,
                 static_cast<std::uint32_t>(in.kv_heads * in.head_dim * 2), static_cast<int>(s.k_len)}};
    }
    __device__ __forceinline__ void load(const ForwardWork& work, SharedAddress keys, SharedAddress values,
                                         int tile) const {
        const int thread = static_cast<int>(opaque(threadIdx.x));
        PagedTile<kDim, kKeys, kThreads> of_tile;
        of_tile.look_up(rows, work.page, tile, thread);
        of_tile.load(rows, keys, values, static_cast<int>(work.in.head_dim), thread);
    }
};

// scores = queries · keysᵀ; the lane's places in both tiles.
template <typename Shape>
__device__ __forceinline__ void make_scores(float (&scores)[Shape::kSlices][Shape::kKeys / 8][4],
                                            SharedAddress queries, SharedAddress keys) {
#pragma unroll
    for (int i = 0; i < Shape::kSlices; ++i) {
#pragma unroll
        for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[i][n][e] = 0.0f;
        }
    }
#pragma unroll
    for (int d = 0; d < Shape::kDim / 16; ++d) {
        std::uint32_t a[Shape::kSlices][4];
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) load_matrices(a[i], Shape::Queries::step(queries, d, i));
#pragma unroll
        for (int n = 0; n < Shape::kKeys / 16; ++n) {
            std::uint32_t b[4];
            load_matrices(b, Shape::Keys::step(keys, d, n));
#pragma unroll
            for (int i = 0; i < Shape::kSlices; ++i) {
                multiply(scores[i][2 * n], a[i], b[0], b[1]);
                multiply(scores[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// values += weights · rows of a tile, columns 16 n each; `rows` is the lane's place in the tile.
template <typename Shape>
__device__ __forceinline__ void add_values(float (&values)[Shape::kSlices][Shape::kDim / 8][4],
                                           const float (&weights)[Shape::kSlices][Shape::kKeys / 8][4],
                                           SharedAddress rows) {
#pragma unroll
    for (int k = 0; k < Shape::kKeys / 16; ++k) {
        std::uint32_t a[Shape::kSlices][4];
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float(&pair)[4] = weights[i][2 * k + e / 2];
                a[i][e] = bfloat16_pair(pair[e % 2 * 2], pair[e % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int n = 0; n < Shape::kDim / 16; ++n) {
            std::uint32_t b[4];
            load_matrices_transposed(b, Shape::Keys::step(rows, n, k));
#pragma unroll
            for (int i = 0; i < Shape::kSlices; ++i) {
                multiply(values[i][2 * n], a[i], b[0], b[1]);
                multiply(values[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// Keys that a row does not see become -inf; `row` is the lane's first one, `key` the tile's first.
template <int kSlices, int kTiles>
__device__ __forceinline__ void hide(float (&scores)[kSlices][kTiles][4], const ForwardTile& tile, int row,
                                     int key) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int seen = tile.seen(row + 16 * i + 8 * h) - key - 2 * t;
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    if (8 * n + e >= seen) scores[i][n][2 * h + e] = -INFINITY;
                }
            }
        }
    }
}

// What a warp has of a part of its rows' keys.
template <typename Shape>
struct ForwardSums {
    RowPair rows[Shape::kSlices];
    float values[Shape::kSlices][Shape::kDim / 8][4] = {};

    // The weights of a tile's keys, in the scores' place.
    __device__ __forceinline__ void weigh_scores(float (&scores)[Shape::kSlices][Shape::kKeys / 8][4],
                                                 float c) {
        float shrink[Shape::kSlices][2];
        bool moved = false;
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) moved |= weigh(scores[i], c, rows[i], shrink[i]);
        if (!any_lane(moved)) return;
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) values[i][n][e] = times(values[i][n][e], shrink[i][e / 2]);
            }
        }
    }
    __device__ __forceinline__ void end_part() {
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) join_sums(rows[i]);
    }
    // The thread's quads of a place lie a block's threads apart.
    __device__ __forceinline__ void park(Quad* place) const {
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
            *place = {{rows[i].max[0], rows[i].max[1], rows[i].sum[0], rows[i].sum[1]}};
            place += Shape::kThreads;
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
                *place = {{values[i][n][0], values[i][n][1], values[i][n][2], values[i][n][3]}};
                place += Shape::kThreads;
            }
        }
    }
    // What was parked, merged with these sums, which are of the next part.
    __device__ __forceinline__ void merge(const Quad* place) {
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
            MergeWeights weights[2];
            merge_rows(i, *place, weights);
            place += Shape::kThreads;
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
                if (n % 4 == 0) __syncwarp();  // no more loads ahead than there are registers
                const Quad parked = *place;
                place += Shape::kThreads;
#pragma unroll
                for (int e = 0; e < 4; ++e) values[i][n][e] = weights[e / 2](parked.v[e], values[i][n][e]);
            }
        }
    }
    // The same where it was parked; the values are 0 then.
    __device__ __forceinline__ void merge_parked(Quad* place) {
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
            MergeWeights weights[2];
            merge_rows(i, *place, weights);
            *place = {{rows[i].max[0], rows[i].max[1], rows[i].sum[0], rows[i].sum[1]}};
            place += Shape::kThreads;
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
                Quad parked = *place;
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    parked.v[e] = weights[e / 2](parked.v[e], values[i][n][e]);
                    values[i][n][e] = 0.0f;
                }
                *place = parked;
                place += Shape::kThreads;
            }
        }
    }
    __device__ __forceinline__ void merge_rows(int i, const Quad& before, MergeWeights (&weights)[2]) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float max = before.v[h], sum = before.v[2 + h];
            weights[h] = merge_part(max, sum, rows[i].max[h], rows[i].sum[h]);
            rows[i].max[h] = max;
            rows[i].sum[h] = sum;
        }
    }
    // The rows' results; `row` is the lane's first one.
    __device__ __forceinline__ void store(const ForwardTile& tile, int row, const ForwardWork& work) const {
        MergeWeights weights[Shape::kSlices][2];
        finish_rows(weights, tile, row, work);
        const AttentionInputs& in = work.in;
        const int head_dim = static_cast<int>(in.head_dim);
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (row + 16 * i + 8 * h >= tile.rows) continue;
                const std::int64_t at =
                    ((tile.q_row + row + 16 * i + 8 * h) * in.heads + blockIdx.x % in.heads) * head_dim +
                    threadIdx.x % 4 * 2;
                if (work.out.is_bfloat16) {
                    store_row(work.out, at, head_dim, values[i], h, weights[i][h].part);
                } else {
                    merge_row(work.out, at, head_dim, values[i], h, weights[i][h]);
                }
            }
        }
    }
    // Writes their lse; what their values count in the results, and what is there already.
    __device__ __forceinline__ void finish_rows(MergeWeights (&weights)[Shape::kSlices][2],
                                                const ForwardTile& tile, int row,
                                                const ForwardWork& work) const {
        const bool leads = threadIdx.x % 4 == 0;
        const std::int64_t first = blockIdx.x % work.in.heads * work.in.q_rows + tile.q_row;
#pragma unroll
        for (int i = 0; i < Shape::kSlices; ++i) {
            bool mine[2];
            RowPair before;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                mine[h] = leads && row + 16 * i + 8 * h < tile.rows && work.lse != nullptr;
                if (work.out.merge && mine[h]) before.sum[h] = work.lse[first + row + 16 * i + 8 * h];
            }
            if (work.out.merge) join_sums(before);  // for all lanes of the group
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float lse = log_sum_exp(rows[i].max[h], rows[i].sum[h]);
                weights[i][h] = {0.0f, result_factor(rows[i].sum[h])};
                if (work.out.merge) {
                    weights[i][h] = merge_result(before.sum[h], lse, rows[i].sum[h]);
                    lse = before.sum[h];
                }
                if (mine[h]) work.lse[first + row + 16 * i + 8 * h] = lse;
            }
        }
    }
    using RowValues = float[Shape::kDim / 8][4];
    __device__ static __forceinline__ void store_row(const Elements& out, std::int64_t at, int head_dim,
                                                     const RowValues& values, int h, float factor) {
        std::byte* const to = out.data + at * 2;
#pragma unroll
        for (int n = 0; n < Shape::kDim / 8; ++n) {
            const float a = times(values[n][2 * h], factor), b = times(values[n][2 * h + 1], factor);
            if (8 * n < head_dim) *reinterpret_cast<std::uint32_t*>(to + 16 * n) = bfloat16_pair(a, b);
        }
    }
    __device__ static __forceinline__ void merge_row(const ForwardOut& out, std::int64_t at, int head_dim,
                                                     const RowValues& values, int h,
                                                     const MergeWeights& weights) {
        std::byte* const to = out.data + at * 4;
        Pair before[Shape::kDim / 8] = {};
        if (out.merge) {
#pragma unroll
            for (int n = 0; n < Shape::kDim / 8; ++n) {
                if (8 * n < head_dim) before[n] = load_pair(to + 32 * n);
            }
        }
#pragma unroll
        for (int n = 0; n < Shape::kDim / 8; ++n) {
            if (8 * n >= head_dim) continue;
            const float a = weights(shared::float_of(before[n].w[0]), values[n][2 * h]);
            const float b = weights(shared::float_of(before[n].w[1]), values[n][2 * h + 1]);
            store_pair(to + 32 * n, {{shared::bits_of(a), shared::bits_of(b)}});
            if (out.rounded.data != nullptr)
                *reinterpret_cast<std::uint32_t*>(out.rounded.data + at * 2 + 16 * n) = bfloat16_pair(a, b);
        }
    }
};

// Grid: (tile of queries, head); the tiles with the most keys, a segment's last, come first.
template <typename Shape, typename Source>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    forward_mma_kernel(const __grid_constant__ ForwardWork work) {
    constexpr SharedAddress kStageBytes = 2 * Shape::Keys::kBytes;
    const AttentionInputs& in = work.in;
    TANDEM_DYNAMIC_SHARED(memory);
    // What is the same for all threads, and seldom looked at: registers are dear.
    __shared__ ForwardTile tile;
    __shared__ Source source;
    __shared__ std::uint32_t room;
    const SharedAddress queries = first_tile(memory);
    const SharedAddress stages = queries + Shape::Queries::kBytes;

    // The queries and the first tiles of keys and values are on their way.
    if (threadIdx.x == 0) {
        const TilePlace place = tile_place(in, work.tiles - 1 - blockIdx.x / in.heads);
        tile = forward_tile(place, Shape::kRows, Shape::kKeys);
        source = Source::of(work, place.segment, blockIdx.x % in.heads / in.group);
    }
    __syncthreads();
    const auto load = [&](const Source& from, int j, bool there, SharedAddress stage) {
        if (there) from.load(work, stages + stage, stages + stage + Shape::Keys::kBytes, j);
        commit_ahead();
    };
    TileLoader<Shape::kDim, Shape::kRows, Shape::kThreads>::load(
        queries, in.q.data + (tile.q_row * in.heads + blockIdx.x % in.heads) * in.head_dim * 2,
        static_cast<std::uint32_t>(in.heads * in.head_dim * 2), tile.rows, static_cast<int>(in.head_dim));
#pragma unroll
    for (int j = 0; j < Shape::kStages - 1; ++j)
        load(source, j, j < tile.key_tiles, static_cast<SharedAddress>(j) * kStageBytes);

    // Where the lane reads, and its first row. What follows from `thread` is computed anew for each tile: found by
    // trial, so that nothing spills.
    constexpr int kWarpRows = 16 * Shape::kSlices;
    const auto thread = [] { return static_cast<int>(opaque(threadIdx.x)); };
    const auto my_queries = [=] {
        return queries + Shape::Queries::rows_as_a(thread() % 32) +
               static_cast<SharedAddress>(thread() / 32 * kWarpRows * Shape::Queries::kRowBytes);
    };
    const SharedAddress my_keys = stages + Shape::Keys::rows_as_columns(static_cast<int>(threadIdx.x) % 32);
    const auto my_values = [=] {
        return stages + Shape::Keys::kBytes + Shape::Keys::rows_as_b(thread() % 32);
    };
    const auto lane_row = [=] { return thread() / 32 * kWarpRows + thread() % 32 / 4; };
    ForwardSums<Shape> sums;
    SharedAddress stage = 0;
#pragma unroll 1
    for (int j = 0; j < tile.key_tiles; ++j) {
        // What follows the barrier is read while it is waited for.
        const Source from = source;
        const bool more = j + Shape::kStages - 1 < tile.key_tiles;
        wait_ahead<Shape::kStages - 2>();
        __syncthreads();  // tile j is there for all, and tile j - 1 has been used by all
        constexpr SharedAddress kLastStage = (Shape::kStages - 1) * kStageBytes;
        load(from, j + Shape::kStages - 1, more, stage == 0 ? kLastStage : stage - kStageBytes);

        float scores[Shape::kSlices][Shape::kKeys / 8][4];
        make_scores<Shape>(scores, opaque(my_queries()), opaque(my_keys + stage));
        if ((j + 1) * Shape::kKeys > tile.seen(thread() / 32 * kWarpRows))
            hide(scores, tile, lane_row(), j * Shape::kKeys);
        sums.weigh_scores(scores, work.c);
        add_values<Shape>(sums.values, scores, opaque(my_values() + stage));
        stage = stage == kLastStage ? 0 : stage + kStageBytes;

        // The end of a part that is not the last one.
        if ((j + 1) % (kPart / Shape::kKeys) != 0 || j + 1 == tile.key_tiles) continue;
        const bool first_part = j + 1 == kPart / Shape::kKeys;
        if (first_part) work.parking.take(&room);
        Quad* const parked = work.parking.places + room * Shape::kPlaceQuads + threadIdx.x;
        sums.end_part();
        if (!first_part) sums.merge(parked);
        sums.park(parked);
        sums = {};
    }
    wait_ahead<0>();  // for the queries, where no tile was
    sums.end_part();
    if (tile.key_tiles > kPart / Shape::kKeys) {
        sums.merge(work.parking.places + room * Shape::kPlaceQuads + threadIdx.x);
        work.parking.give_back(room);
    }
    sums.store(tile, lane_row(), work);
}

// Whether the kernel can do it. Positions of a segment are counted in 32 bits, and a scale of 0 would make NaN
// of the scores of keys that are not seen.
inline bool by_tensor_cores(const AttentionInputs& in, const std::vector<AttentionSegment>& segments,
                            const ForwardOut& out) {
    return in.q.is_bfloat16 && in.k.is_bfloat16 && in.v.is_bfloat16 && in.q.vector && in.k.vector &&
           in.v.vector && out.vector && (out.rounded.data == nullptr || out.rounded.vector) &&
           in.head_dim <= 256 && in.scale > 0.0f && longest(segments) < kDividends / 2;
}

template <template <int, int, int> typename Source, bool kHopper = false>
void forward_mma(Work& work, AttentionInputs in, const std::vector<AttentionSegment>& segments,
                 const ForwardOut& out, float* lse, const std::int32_t* pages = nullptr,
                 shared::Divider page = {}) {
    with_mma_head_dim(in.head_dim, [&]<int kDim>() {
        using Shape = ForwardShape<kDim, kHopper ? kHopperCadence<kDim> : kCadence>;
        const Tiling tiling = query_tiles(work, in, segments, Shape::kRows);
        const std::int64_t blocks = tiling.tiles() * in.heads;
        const std::int64_t parked = longest(segments) > kPart ? blocks : 0;
        work.launch(forward_mma_kernel<Shape, Source<kDim, Shape::kKeys, Shape::kThreads>>, blocks,
                    Shape::kThreads, Shape::kBytes,
                    ForwardWork{in, tiling.tiles(), in.scale * kLog2E, out, lse,
                                parking(work, parked, Shape::kPlaceQuads), pages, page});
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
