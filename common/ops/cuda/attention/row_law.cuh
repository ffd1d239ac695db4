// The arithmetic of a row of attention, the same in every kernel with tensor cores, so that training, prefill
// and decode give a row the same bits however it was cut, packed or paged. A row is a query of a head; its
// result depends on its q, its keys and values in order, and on two constants, never on its neighbours:
//
// - Scores s: sums of products of sixteen dimensions, ascending, from 0. A key that the row does not see: -inf.
// - Its keys are taken kCadence at a time. x = c · the largest of their scores, c = scale · log2 e. The row's
//   reference m moves to x iff x > m + 8, and what was summed shrinks by 2^(m - x): after the first keys hardly
//   any row moves. Weights p = 2^(s c - m), 0 where m is -inf. Four partial sums l (of keys 2t, 2t + 1 of each
//   eight): l = l · shrink + their p, ascending. Values O = O · shrink, then sums of products of sixteen keys,
//   ascending, with p as bfloat16.
// - Every kPart keys m, l and O start anew; the parts are merged in order. l = (l0 + l1) + (l2 + l3).
// - In the end out = O · (1 / l), lse = m ln 2 + ln l; where l is 0, out = 0 and lse = -inf.
//
// A key that a row does not see adds exactly nothing, if its value is finite: a tile may hold more keys than
// the row has. No operation may be fused or split by a compiler: fused, times and plus say what is done.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/ops/cuda/instructions.cuh"
#include "common/ops/cuda/reduce.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kCadence = 64;
template <int kDim>
inline constexpr int kHopperCadence = kDim <= 128 ? 128 : 64;  // as wide as its products want to be
inline constexpr int kPart = 1024;                             // keys
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// Rows g and g + 8 of a product's 16 (instructions.cuh), in the four lanes of a group.
struct RowPair {
    float max[2] = {-INFINITY, -INFINITY};  // m, the same in all lanes of the group
    float sum[2] = {0.0f, 0.0f};            // l, of the lane's own keys until joined
};

// Scores of a cadence's keys, eight a tile, become their weights. True when the values must be multiplied by
// `shrink`, for one of the rows moved.
template <int kTiles>
__device__ __forceinline__ bool weigh(float (&scores)[kTiles][4], float c, RowPair& rows,
                                      float (&shrink)[2]) {
    bool moved = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float most = scores[0][2 * h];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) most = fmaxf(most, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
        most = times(most, c);
        const bool moves = most > plus(rows.max[h], 8.0f);
        shrink[h] = moves ? fast_exp2(plus(rows.max[h], -most)) : 1.0f;
        rows.max[h] = moves ? most : rows.max[h];
        moved = moved || moves;
        const float reference = rows.max[h] == -INFINITY ? 0.0f : -rows.max[h];
        float added = 0.0f;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
                scores[n][e] = fast_exp2(fused(scores[n][e], c, reference));
                added = plus(added, scores[n][e]);
            }
        }
        rows.sum[h] = fused(rows.sum[h], shrink[h], added);
    }
    return moved;
}

// The end of a part: the sums of the group's lanes.
__device__ __forceinline__ void join_sums(RowPair& rows) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        rows.sum[h] = plus(rows.sum[h], __shfl_xor_sync(kAllLanes, rows.sum[h], 1));
        rows.sum[h] = plus(rows.sum[h], __shfl_xor_sync(kAllLanes, rows.sum[h], 2));
    }
}

// What a row's parts before, and the next one, count in their merge.
struct MergeWeights {
    float before, part;

    __device__ float operator()(float value_before, float value_of_part) const {
        return fused(value_of_part, part, times(value_before, before));
    }
};

// Merges a part's max and sum into those of the parts before; the values follow by the weights.
__device__ __forceinline__ MergeWeights merge_part(float& max, float& sum, float part_max, float part_sum) {
    const float most = fmaxf(max, part_max);
    const float reference = most == -INFINITY ? 0.0f : most;
    const MergeWeights weights{fast_exp2(plus(max, -reference)), fast_exp2(plus(part_max, -reference))};
    max = most;
    sum = weights(sum, part_sum);
    return weights;
}

// By which a row's values become its result.
__device__ __forceinline__ float result_factor(float sum) {
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}
__device__ __forceinline__ float log_sum_exp(float max, float sum) {
    return sum == 0.0f ? -INFINITY : fused(max, kLn2, logf(sum));
}

// Merges a row's sums into its result over other keys, whose lse this is: what that result and the values count.
// A row that saw no key changes nothing.
__device__ __forceinline__ MergeWeights merge_result(float& lse, float lse_of_sums, float sum) {
    if (sum == 0.0f) return {1.0f, 0.0f};
    const float most = fmaxf(lse, lse_of_sums);
    const float before = fast_exp2(times(plus(lse, -most), kLog2E));
    const float added = fast_exp2(times(plus(lse_of_sums, -most), kLog2E));
    const float both = plus(before, added);
    lse = plus(most, logf(both));
    return {before / both, added / times(both, sum)};
}

}  // namespace tandem::ops::TANDEM_KERNELS
