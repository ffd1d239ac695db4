// Decode on tensor cores: a block has the query heads of a group, sixteen at most, which are the rows of its
// products, and kPart of a sequence's keys. row_law.cuh says what it computes. Each of four warps makes all
// scores and weights of a tile, and the values of a quarter of the dimensions: the same sums in the same lanes
// as in forward_mma.cuh, and no exchange between warps. The bound is reading the cache: kStages tiles of keys
// and values are on their way, and where the next one lies is looked up a turn ahead.
#pragma once

#include "common/ops/cuda/attention/decode_parts.cuh"
#include "common/ops/cuda/attention/paged_rows.cuh"
#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kMmaHeads = 16;

template <int kDim, int kKeys_>
struct DecodeShape {
    static constexpr int kKeys = kKeys_;
    using Keys = MmaTile<kDim, kKeys>;
    static constexpr int kStages = kKeys == 128 ? 3 : (kDim == 64 ? 4 : (kDim == 256 ? 2 : 3));
    static constexpr int kBlocks =  // of an SM
        kKeys == 128 ? (kDim == 64 ? 2 : 1) : (kDim == 64 ? 3 : (kDim == 256 ? 1 : 2));
    static constexpr int kColumns = (kDim / 16 + 3) / 4;  // sixteen dimensions each, of a warp
    static constexpr SharedAddress kStageBytes = 2 * Keys::kBytes;
    static constexpr std::size_t kBytes = kStages * kStageBytes + kTileAlignment;
};

// The queries as a, sixteen dimensions each; zeros where there is no such head or dimension.
template <int kDim>
__device__ __forceinline__ void load_queries(const Elements& q, const Cache& c, const DecodeItem& item,
                                             std::uint32_t (&a)[kDim / 16][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::byte* const first = q.data + (item.sequence * c.heads + item.head) * c.head_dim * 2;
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int head = lane / 4 + e % 2 * 8;
            const int column = 16 * d + e / 2 * 8 + lane % 4 * 2;
            a[d][e] = 0;
            if (head < item.heads && column < c.head_dim) {
                a[d][e] = *reinterpret_cast<const std::uint32_t*>(first + (head * c.head_dim + column) * 2);
            }
        }
    }
}

// Grid: (sequence, kv head, kMmaHeads of its group, part).
template <int kDim, int kKeys>
__global__ void __launch_bounds__(kDecodeThreads, DecodeShape<kDim, kKeys>::kBlocks)
    part_mma_kernel(const __grid_constant__ Elements q, const __grid_constant__ Cache c, float scale_log2,
                    std::uint32_t head_blocks, const __grid_constant__ Parts parts) {
    using Shape = DecodeShape<kDim, kKeys>;
    using Keys = typename Shape::Keys;
    TANDEM_DYNAMIC_SHARED(memory);
    const DecodeItem item(c, static_cast<std::uint32_t>(parts.count), head_blocks, kMmaHeads, kPart);
    if (item.begin >= item.end) return;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int first_tile_of_part = item.begin / kKeys;
    const int tiles = (item.end - item.begin + kKeys - 1) / kKeys;
    const SharedAddress stages = first_tile(memory);

    // The first tiles are on their way.
    const std::int64_t head_bytes = item.kv_head * c.head_dim * 2;
    const PagedRows rows{c.k.data + head_bytes, c.v.data + head_bytes,
                         c.tables + item.sequence * c.table_width,
                         static_cast<std::uint32_t>(c.kv_heads * c.head_dim * 2), item.end};
    PagedTile<kDim, kKeys, kDecodeThreads> next;
    const auto load = [&](int j, SharedAddress stage) {
        if (j < tiles)
            next.load(rows, stages + stage, stages + stage + Keys::kBytes, static_cast<int>(c.head_dim),
                      thread);
        commit_ahead();
        if (j + 1 < tiles) next.look_up(rows, c.pages, first_tile_of_part + j + 1, thread);
    };
    next.look_up(rows, c.pages, first_tile_of_part, thread);
#pragma unroll
    for (int j = 0; j < Shape::kStages - 1; ++j) load(j, static_cast<SharedAddress>(j) * Shape::kStageBytes);

    std::uint32_t queries[kDim / 16][4];
    load_queries<kDim>(q, c, item, queries);
    const SharedAddress my_keys = stages + Keys::rows_as_columns(lane);
    SharedAddress my_values[Shape::kColumns];
#pragma unroll
    for (int n = 0; n < Shape::kColumns; ++n) {
        my_values[n] =
            Keys::step(stages + Keys::kBytes + Keys::rows_as_b(lane), warp * Shape::kColumns + n, 0);
    }
    RowPair heads;
    float values[2 * Shape::kColumns][4] = {};
    SharedAddress stage = 0;
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
        wait_ahead<Shape::kStages - 2>();
        __syncthreads();  // tile j is there for all, and tile j - 1 has been used by all
        constexpr SharedAddress kLastStage = (Shape::kStages - 1) * Shape::kStageBytes;
        load(j + Shape::kStages - 1, stage == 0 ? kLastStage : stage - Shape::kStageBytes);

        // The scores of all heads.
        float scores[kKeys / 8][4] = {};
        const SharedAddress keys = opaque(my_keys + stage);
#pragma unroll
        for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
            for (int n = 0; n < kKeys / 16; ++n) {
                std::uint32_t b[4];
                load_matrices(b, Keys::step(keys, d, n));
                multiply(scores[2 * n], queries[d], b[0], b[1]);
                multiply(scores[2 * n + 1], queries[d], b[2], b[3]);
            }
        }
        const int there = item.end - item.begin - j * kKeys;
        if (there < kKeys) {
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (8 * n + lane % 4 * 2 + e % 2 >= there) scores[n][e] = -INFINITY;
                }
            }
        }

        // Their weights, and the values of this warp's dimensions.
        float shrink[2];
        if (any_lane(weigh(scores, scale_log2, heads, shrink))) {
#pragma unroll
            for (int n = 0; n < 2 * Shape::kColumns; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) values[n][e] = times(values[n][e], shrink[e / 2]);
            }
        }
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k) {
            std::uint32_t a[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float(&pair)[4] = scores[2 * k + e / 2];
                a[e] = bfloat16_pair(pair[e % 2 * 2], pair[e % 2 * 2 + 1]);
            }
#pragma unroll
            for (int n = 0; n < Shape::kColumns; ++n) {
                if (warp * Shape::kColumns + n >= kDim / 16) continue;
                std::uint32_t b[4];
                load_matrices_transposed(b, Keys::step(my_values[n] + stage, 0, k));
                multiply(values[2 * n], a, b[0], b[1]);
                multiply(values[2 * n + 1], a, b[2], b[3]);
            }
        }
        stage = stage == kLastStage ? 0 : stage + Shape::kStageBytes;
    }

    // What this warp has of the part.
    join_sums(heads);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int head = lane / 4 + 8 * h;
        if (head >= item.heads) continue;
        const std::int64_t to = (item.sequence * c.heads + item.head + head) * parts.count + item.part;
        if (warp == 0 && lane % 4 == 0) {
            parts.max[to] = heads.max[h];
            parts.sum[to] = heads.sum[h];
        }
#pragma unroll
        for (int n = 0; n < 2 * Shape::kColumns; ++n) {
            const int column = warp * Shape::kColumns * 16 + 8 * n;
            if (column >= c.head_dim) continue;
            store_pair(parts.values + to * c.head_dim + column + lane % 4 * 2,
                       {{shared::bits_of(values[n][2 * h]), shared::bits_of(values[n][2 * h + 1])}});
        }
    }
}

// Grid: (sequence, head). The parts of a row, merged in order.
__global__ void __launch_bounds__(kDecodeThreads)
    merge_mma_kernel(Parts parts, const std::int32_t* lengths, std::int64_t heads, std::int64_t head_dim,
                     Elements out) {
    const std::int64_t row = blockIdx.x;
    const int count = (lengths[row / heads] + kPart - 1) / kPart;
    const std::int64_t first = row * parts.count;
    for (std::int64_t d = threadIdx.x; d < head_dim; d += kDecodeThreads) {
        float max = -INFINITY, sum = 0.0f, value = 0.0f;
        for (int p = 0; p < count; ++p) {
            const float of_part = parts.values[(first + p) * head_dim + d];
            if (p == 0) {
                max = parts.max[first];
                sum = parts.sum[first];
                value = of_part;
            } else {
                value = merge_part(max, sum, parts.max[first + p], parts.sum[first + p])(value, of_part);
            }
        }
        store1(out, row * head_dim + d, times(value, result_factor(sum)));
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
