// Flash attention, forward (Dao, "FlashAttention-2"), without tensor cores: for float32 tensors and head sizes
// that forward_mma.cuh has not, and the oracle of its tests. A block has 64 queries of one head and walks over
// their keys, 64 at a time, with a running softmax. All sums are fp32. Key tiles start at the segment's first
// key, so a row's values do not depend on what else is in the call.
#pragma once

#include <cmath>

#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kForwardTile = 64;
inline constexpr int kForwardRows = kForwardTile / 16;
inline constexpr int kForwardStride = kForwardTile + 4;
inline constexpr float kLowestScore = -3.402823466e38f;

template <int kDim>
constexpr std::size_t forward_fp32_bytes() {
    return sizeof(float) * (2 * kForwardTile * (kDim + 4) + kForwardTile * kForwardStride);
}
static_assert(forward_fp32_bytes<256>() <= kMostSharedBytes);

// Over 16 neighbouring lanes.
__device__ __forceinline__ float max16(float x) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, x, step);
        x = other > x ? other : x;
    }
    return x;
}

__device__ __forceinline__ float sum16(float x) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}

// Grid: (tile of queries, head); the tiles with the most keys, a segment's last, come first.
template <int kDim>
__global__ void __launch_bounds__(kTileThreads, kDim == 256 ? 1 : 2)
    forward_fp32_kernel(AttentionInputs in, std::int64_t tiles, ForwardOut out, float* lse) {
    TANDEM_DYNAMIC_SHARED(memory);
    float* const q = reinterpret_cast<float*>(memory);
    float* const kv = q + kForwardTile * (kDim + 4);
    float* const p = kv + kForwardTile * (kDim + 4);
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const std::int64_t head = blockIdx.x % in.heads;
    const TilePlace place = tile_place(in, tiles - 1 - blockIdx.x / in.heads);
    const DeviceSegment& s = place.segment;
    const std::int64_t first = place.tile * kForwardTile;
    const std::int64_t rows = s.q_len - first < kForwardTile ? s.q_len - first : kForwardTile;
    load_tile<kDim, kForwardTile>(in.q, s.q_begin + first, rows, head, in.heads, in.head_dim, in.scale, q);

    std::int64_t seen[kForwardRows];
    float max[kForwardRows], sum[kForwardRows];
    Four acc[kForwardRows][kDim / 64] = {};
#pragma unroll
    for (int i = 0; i < kForwardRows; ++i) {
        const std::int64_t row = ty * kForwardRows + i;
        seen[i] = row < rows ? shared::visible_keys(first + row, s.q_len, s.k_len, s.causal) : 0;
        max[i] = kLowestScore;
        sum[i] = 0.0f;
    }
    const std::int64_t last = shared::visible_keys(first + rows - 1, s.q_len, s.k_len, s.causal);
    for (std::int64_t key = 0; key < last; key += kForwardTile) {
        const std::int64_t keys = s.k_len - key < kForwardTile ? s.k_len - key : kForwardTile;
        __syncthreads();  // q is there; the values of the tile before have been used
        load_tile<kDim, kForwardTile>(in.k, s.k_begin + key, keys, head / in.group, in.kv_heads, in.head_dim,
                                      1.0f, kv);
        __syncthreads();
        float scores[kForwardRows][kForwardRows];
        rows_times_rows<kDim, kForwardRows>(q, kv, scores);
#pragma unroll
        for (int i = 0; i < kForwardRows; ++i) {
            float most = max[i];
#pragma unroll
            for (int j = 0; j < kForwardRows; ++j) {
                if (key + tx + 16 * j >= seen[i]) continue;
                most = scores[i][j] > most ? scores[i][j] : most;
            }
            most = max16(most);
            const float shrink = shared::fast_exp(max[i] - most);
            float added = 0.0f;
#pragma unroll
            for (int j = 0; j < kForwardRows; ++j) {
                const bool visible = key + tx + 16 * j < seen[i];
                const float e = visible ? shared::fast_exp(scores[i][j] - most) : 0.0f;
                p[(ty * kForwardRows + i) * kForwardStride + tx + 16 * j] = e;
                added += e;
            }
            sum[i] = sum[i] * shrink + sum16(added);
            max[i] = most;
#pragma unroll
            for (int n = 0; n < kDim / 64; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[i][n].v[e] *= shrink;
            }
        }
        __syncthreads();  // the keys have been used
        load_tile<kDim, kForwardTile>(in.v, s.k_begin + key, keys, head / in.group, in.kv_heads, in.head_dim,
                                      1.0f, kv);
        __syncthreads();
        add_weighted_rows<kDim, kForwardRows>(
            [&](int i, int j) { return p[(ty * kForwardRows + i) * kForwardStride + j]; }, kv, acc);
    }
#pragma unroll
    for (int i = 0; i < kForwardRows; ++i) {
        const std::int64_t row = ty * kForwardRows + i;
        const std::int64_t at = s.q_begin + first + row;
        float* const row_lse = lse + head * in.q_rows + at;
        const bool writes_lse = tx == 0 && row < rows;
        float result = sum[i] == 0.0f ? -INFINITY : max[i] + logf(sum[i]);
        MergeWeights weights{0.0f, result_factor(sum[i])};
        if (out.merge) {
            float before = sum16(writes_lse ? *row_lse : 0.0f);  // for all who have some of the row
            weights = merge_result(before, result, sum[i]);
            result = before;
        }
        if (writes_lse) *row_lse = result;
        if (row >= rows) continue;
        const std::int64_t base = (at * in.heads + head) * in.head_dim;
#pragma unroll
        for (int n = 0; n < kDim / 64; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const std::int64_t d = 4 * tx + 64 * n + e;
                if (d >= in.head_dim) continue;
                const float before = out.merge ? load1(out, base + d) : 0.0f;
                const float value = weights(before, acc[i][n].v[e]);
                store1(out, base + d, value);
                if (out.rounded.data != nullptr) store1(out.rounded, base + d, value);
            }
        }
    }
}

inline void forward_fp32(Work& work, AttentionInputs in, const std::vector<AttentionSegment>& segments,
                         const ForwardOut& out, float* lse) {
    const Tiling tiling = query_tiles(work, in, segments, kForwardTile);
    with_head_dim("attention_forward", in.head_dim, [&]<int kDim>() {
        work.launch(forward_fp32_kernel<kDim>, tiling.tiles() * in.heads, kTileThreads,
                    forward_fp32_bytes<kDim>(), in, tiling.tiles(), out, lse);
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
