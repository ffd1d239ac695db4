// Shared by the attention kernels without tensor cores: tiles in shared memory, and the two products of a tile.
//
// A block has 16 × 16 threads (ty, tx). Of a product of R·16 rows by R·16 columns, thread (ty, tx) has the
// rows ty R + i and the columns tx + 16 j; of one with kDim columns it has the columns 4 tx + 64 n … + 3.
// Rows of a tile lie kDim + 4 floats apart: the 16-byte reads of eight neighbours fall into different banks.
#pragma once

#include <cstdint>

#include "common/ops/cuda/attention/segments.cuh"
#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kTileThreads = 256;

// rows [begin, begin + count) of one head, as floats, times factor; zeros up to kRows and kDim.
template <int kDim, int kRows>
__device__ __forceinline__ void load_tile(const Elements& from, std::int64_t begin, std::int64_t count,
                                          std::int64_t head, std::int64_t heads, std::int64_t head_dim,
                                          float factor, float* to) {
    for (int item = static_cast<int>(threadIdx.x); item < kRows * kDim / 8; item += kTileThreads) {
        const int row = item / (kDim / 8);
        const int at = item % (kDim / 8) * 8;
        float v[8] = {};
        if (row < count && at < head_dim) {
            load8(from, ((begin + row) * heads + head) * head_dim + at, head_dim - at, v);
        }
        float* const target = to + row * (kDim + 4) + at;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            Words words;
#pragma unroll
            for (int j = 0; j < 4; ++j) words.w[j] = shared::bits_of(v[i + j] * factor);
            store16(target + i, words);
        }
    }
}

struct Four {
    float v[4];
};

__device__ __forceinline__ Four load_four(const float* from) {
    const Words words = load16(from);
    Four result;
#pragma unroll
    for (int i = 0; i < 4; ++i) result.v[i] = shared::float_of(words.w[i]);
    return result;
}

// product[i][j] = a[ty R + i] · b[tx + 16 j]
template <int kDim, int R>
__device__ __forceinline__ void rows_times_rows(const float* a, const float* b, float (&product)[R][R]) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) product[i][j] = 0.0f;
    }
#pragma unroll 2
    for (int d = 0; d < kDim; d += 4) {
        Four x[R], y[R];
#pragma unroll
        for (int i = 0; i < R; ++i) x[i] = load_four(a + (ty * R + i) * (kDim + 4) + d);
#pragma unroll
        for (int j = 0; j < R; ++j) y[j] = load_four(b + (tx + 16 * j) * (kDim + 4) + d);
#pragma unroll
        for (int i = 0; i < R; ++i) {
#pragma unroll
            for (int j = 0; j < R; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) product[i][j] += x[i].v[e] * y[j].v[e];
            }
        }
    }
}

// sum[i][n] += Σ_j weights(ty R + i, j) rows[j][4 tx + 64 n …], over the tile's R·16 rows; weight(i, j) reads
// the factor of the thread's i-th result row.
template <int kDim, int R, typename Weight>
__device__ __forceinline__ void add_weighted_rows(const Weight& weight, const float* rows,
                                                  Four (&sum)[R][kDim / 64]) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    for (int j = 0; j < R * 16; ++j) {
        float w[R];
#pragma unroll
        for (int i = 0; i < R; ++i) w[i] = weight(i, j);
#pragma unroll
        for (int n = 0; n < kDim / 64; ++n) {
            const Four x = load_four(rows + j * (kDim + 4) + 4 * tx + 64 * n);
#pragma unroll
            for (int i = 0; i < R; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][n].v[e] += w[i] * x.v[e];
            }
        }
    }
}

// Calls f.template operator()<kDim>() with the smallest of 64, 128 and 256 that holds head_dim.
template <typename F>
void with_head_dim(const char* op, std::int64_t head_dim, const F& f) {
    require(head_dim <= 256, "{}: head_dim {} on a GPU; at most 256 is supported there", op, head_dim);
    if (head_dim <= 64) {
        f.template operator()<64>();
    } else if (head_dim <= 128) {
        f.template operator()<128>();
    } else {
        f.template operator()<256>();
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
