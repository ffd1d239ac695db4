// The backward of attention on tensor cores: what its two kernels share. backward_keys_mma.cuh sums the
// gradients of a tile of keys, backward_queries_mma.cuh those of a tile of queries; both compute the
// probabilities again, so that nothing is added to by two blocks and every sum has one order:
//   p   = 2^(scale log2(e) q·k - log2(e) lse)
//   ds  = p (dout·v - delta)
//   dv += p dout,  dk += scale ds q,  dq += scale ds k
// p and ds are rounded to bfloat16 for these products; all sums are float32.
#pragma once

#include "common/ops/cuda/attention/row_law.cuh"
#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/cuda/attention/tile_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// Of a row of queries and a head; +inf and 0 where there is no row: then p is 0.
struct alignas(8) RowStatistics {
    float lse;  // times log2(e)
    float delta;
};

struct BackwardInputs {
    AttentionInputs in;  // bfloat16, rows at multiples of 16 bytes
    const std::byte* dout;
    const RowStatistics* statistics;   // [heads, padded_rows]: a segment's rows fill whole tiles of queries
    const std::int64_t* padded_begin;  // of each segment, in padded_rows
    std::int64_t padded_rows;
    float exponent_scale;  // scale log2(e)
    float* dq;
    float* dk;
    float* dv;
    GradientWrites writes;
};

// A block's tile, as tile_place says, and where its segment's rows of statistics begin.
struct BackwardPlace {
    DeviceSegment segment;
    std::int64_t tile;
    std::int64_t padded_begin;
};

__device__ __forceinline__ BackwardPlace backward_place(const BackwardInputs& b, std::int64_t tile) {
    const std::int64_t index = shared::part_of(b.in.starts, b.in.segment_count, tile);
    return {b.in.segments[index], tile - b.in.starts[index], b.padded_begin[index]};
}

// The first byte of row `row` of a head.
__device__ __forceinline__ const std::byte* head_row(const std::byte* data, std::int64_t row,
                                                     std::int64_t head, std::int64_t heads,
                                                     std::int64_t head_dim) {
    return data + (row * heads + head) * head_dim * 2;
}

__device__ __forceinline__ float probability(float score, float exponent_scale, float lse) {
    return fast_exp2(fused(score, exponent_scale, -lse));
}

// Two products side by side, as `multiply` leaves them, are a of the next.
__device__ __forceinline__ void as_operand(const float (&left)[4], const float (&right)[4],
                                           std::uint32_t (&a)[4]) {
    a[0] = bfloat16_pair(left[0], left[1]);
    a[1] = bfloat16_pair(left[2], left[3]);
    a[2] = bfloat16_pair(right[0], right[1]);
    a[3] = bfloat16_pair(right[2], right[3]);
}

// float32 rows of one head += factor sums, or = them: a warp's sixteen rows, as `multiply` leaves them.
template <int kDim>
__device__ __forceinline__ void add_sums(float* to, std::int64_t begin, int row, int count, std::int64_t head,
                                         std::int64_t heads, std::int64_t head_dim, bool write, float factor,
                                         const float (&sums)[kDim / 8][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int mine = row + lane / 4 + 8 * half;
        if (mine >= count) continue;
        float* const target = to + ((begin + mine) * heads + head) * head_dim + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
            if (8 * n >= head_dim) continue;
            const Pair before = write ? Pair{} : load_pair(target + 8 * n);
            const float first = fused(sums[n][2 * half], factor, shared::float_of(before.w[0]));
            const float second = fused(sums[n][2 * half + 1], factor, shared::float_of(before.w[1]));
            store_pair(target + 8 * n, {{shared::bits_of(first), shared::bits_of(second)}});
        }
    }
}

// Grid: items (head, padded row), kTileThreads a block; tile_rows of the tiling that pads.
__global__ void __launch_bounds__(kTileThreads)
    statistics_kernel(AttentionInputs in, const float* lse, const float* delta, std::int64_t padded_rows,
                      std::int64_t tile_rows, RowStatistics* to) {
    const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
    if (item >= in.heads * padded_rows) return;
    const std::int64_t head = item / padded_rows;
    const TilePlace place = tile_place(in, item % padded_rows / tile_rows);
    const std::int64_t row = place.tile * tile_rows + item % tile_rows;
    RowStatistics mine{INFINITY, 0.0f};
    if (row < place.segment.q_len) {
        const std::int64_t at = head * in.q_rows + place.segment.q_begin + row;
        mine = {lse[at] * kLog2E, delta[at]};
    }
    to[item] = mine;
}

}  // namespace tandem::ops::TANDEM_KERNELS
