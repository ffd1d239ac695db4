// Flash attention, backward, without tensor cores and without atomics: one kernel sums the gradients of a tile of keys over the
// queries that see it, another one those of a tile of queries over its keys; both compute the probabilities
// again:
//   p   = exp(scale q·k - lse)
//   dp  = dout·v
//   ds  = p (dp - delta)
//   dv += p dout
//   dq += scale ds k
//   dk += scale ds q
#pragma once

#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {

template <int kDim>
inline constexpr int kBackwardTile =
    kDim == 64 ? 64 : 32;  // so that four tiles fit the shared memory of an A100

template <int kDim>
constexpr std::size_t backward_fp32_bytes() {
    return sizeof(float) *
           (4 * kBackwardTile<kDim> * (kDim + 4) + 2 * kBackwardTile<kDim> * (kBackwardTile<kDim> + 4));
}
static_assert(backward_fp32_bytes<64>() <= kMostSharedBytes &&
              backward_fp32_bytes<128>() <= kMostSharedBytes &&
              backward_fp32_bytes<256>() <= kMostSharedBytes);

struct Gradients {
    Elements dout;
    const float* lse;    // [heads, q_rows]
    const float* delta;  // [heads, q_rows]
    float* dq;
    float* dk;
    float* dv;
    GradientWrites writes;
};

template <int kDim>
struct Tiles {
    float *q, *dout, *k, *v;
    float *p, *ds;  // [queries, keys], rows kBackwardTile + 4 apart

    __device__ explicit Tiles(unsigned char* memory) {
        constexpr int kSize = kBackwardTile<kDim> * (kDim + 4);
        q = reinterpret_cast<float*>(memory);
        dout = q + kSize;
        k = dout + kSize;
        v = k + kSize;
        p = v + kSize;
        ds = p + kBackwardTile<kDim> * (kBackwardTile<kDim> + 4);
    }
};

// p and ds of a tile of queries (`first`, `rows`) and one of keys (`key`).
template <int kDim>
__device__ __forceinline__ void probabilities(const AttentionInputs& in, const Gradients& g,
                                              const DeviceSegment& s, std::int64_t head, std::int64_t first,
                                              std::int64_t rows, std::int64_t key, const Tiles<kDim>& tiles) {
    constexpr int kR = kBackwardTile<kDim> / 16;
    constexpr int kStride = kBackwardTile<kDim> + 4;
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    float scores[kR][kR], dp[kR][kR];
    rows_times_rows<kDim, kR>(tiles.q, tiles.k, scores);
    rows_times_rows<kDim, kR>(tiles.dout, tiles.v, dp);
#pragma unroll
    for (int i = 0; i < kR; ++i) {
        const std::int64_t row = ty * kR + i;
        const std::int64_t seen =
            row < rows ? shared::visible_keys(first + row, s.q_len, s.k_len, s.causal) : 0;
        const std::int64_t at = head * in.q_rows + s.q_begin + first + row;
        const float lse = row < rows ? g.lse[at] : 0.0f;
        const float delta = row < rows ? g.delta[at] : 0.0f;
#pragma unroll
        for (int j = 0; j < kR; ++j) {
            const bool visible = key + tx + 16 * j < seen;
            const float p = visible ? shared::fast_exp(scores[i][j] * in.scale - lse) : 0.0f;
            tiles.p[row * kStride + tx + 16 * j] = p;
            tiles.ds[row * kStride + tx + 16 * j] = visible ? p * (dp[i][j] - delta) * in.scale : 0.0f;
        }
    }
}

// rows [begin, begin + count) of one head += sums, or = sums
template <int kDim, int R>
__device__ __forceinline__ void add_to(float* to, std::int64_t begin, std::int64_t count, std::int64_t head,
                                       std::int64_t heads, std::int64_t head_dim, bool write,
                                       const Four (&sums)[R][kDim / 64]) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int i = 0; i < R; ++i) {
        const std::int64_t row = ty * R + i;
        if (row >= count) continue;
        float* const target = to + ((begin + row) * heads + head) * head_dim;
#pragma unroll
        for (int n = 0; n < kDim / 64; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int d = 4 * tx + 64 * n + e;
                if (d < head_dim) target[d] = (write ? 0.0f : target[d]) + sums[i][n].v[e];
            }
        }
    }
}

// Grid: (tile of keys, kv head).
template <int kDim>
__global__ void __launch_bounds__(kTileThreads, kDim == 128 ? 2 : 1)
    key_fp32_kernel(AttentionInputs in, Gradients g) {
    constexpr int kSize = kBackwardTile<kDim>;
    constexpr int kR = kSize / 16;
    constexpr int kStride = kSize + 4;
    TANDEM_DYNAMIC_SHARED(memory);
    const Tiles<kDim> tiles(memory);
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const std::int64_t kv_head = blockIdx.x % in.kv_heads;
    const TilePlace place = tile_place(in, blockIdx.x / in.kv_heads);
    const DeviceSegment& s = place.segment;
    const std::int64_t key = place.tile * kSize;
    const std::int64_t keys = s.k_len - key < kSize ? s.k_len - key : kSize;
    load_tile<kDim, kSize>(in.k, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, 1.0f, tiles.k);
    load_tile<kDim, kSize>(in.v, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, 1.0f, tiles.v);
    Four dk[kR][kDim / 64] = {};
    Four dv[kR][kDim / 64] = {};
    const std::int64_t start = shared::first_query(key, s.q_len, s.k_len, s.causal) / kSize * kSize;
    for (std::int64_t head = kv_head * in.group; head < (kv_head + 1) * in.group; ++head) {
        for (std::int64_t first = start; first < s.q_len; first += kSize) {
            const std::int64_t rows = s.q_len - first < kSize ? s.q_len - first : kSize;
            __syncthreads();  // what the turn before left has been used
            load_tile<kDim, kSize>(in.q, s.q_begin + first, rows, head, in.heads, in.head_dim, 1.0f, tiles.q);
            load_tile<kDim, kSize>(g.dout, s.q_begin + first, rows, head, in.heads, in.head_dim, 1.0f,
                                   tiles.dout);
            __syncthreads();
            probabilities<kDim>(in, g, s, head, first, rows, key, tiles);
            __syncthreads();
            add_weighted_rows<kDim, kR>([&](int i, int j) { return tiles.p[j * kStride + ty * kR + i]; },
                                        tiles.dout, dv);
            add_weighted_rows<kDim, kR>([&](int i, int j) { return tiles.ds[j * kStride + ty * kR + i]; },
                                        tiles.q, dk);
        }
    }
    add_to<kDim, kR>(g.dk, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, g.writes.dk_dv, dk);
    add_to<kDim, kR>(g.dv, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, g.writes.dk_dv, dv);
}

// Grid: (tile of queries, head).
template <int kDim>
__global__ void __launch_bounds__(kTileThreads, kDim == 256 ? 1 : 2)
    query_fp32_kernel(AttentionInputs in, Gradients g) {
    constexpr int kSize = kBackwardTile<kDim>;
    constexpr int kR = kSize / 16;
    constexpr int kStride = kSize + 4;
    TANDEM_DYNAMIC_SHARED(memory);
    const Tiles<kDim> tiles(memory);
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const std::int64_t head = blockIdx.x % in.heads;
    const TilePlace place = tile_place(in, blockIdx.x / in.heads);
    const DeviceSegment& s = place.segment;
    const std::int64_t first = place.tile * kSize;
    const std::int64_t rows = s.q_len - first < kSize ? s.q_len - first : kSize;
    load_tile<kDim, kSize>(in.q, s.q_begin + first, rows, head, in.heads, in.head_dim, 1.0f, tiles.q);
    load_tile<kDim, kSize>(g.dout, s.q_begin + first, rows, head, in.heads, in.head_dim, 1.0f, tiles.dout);
    Four dq[kR][kDim / 64] = {};
    const std::int64_t last = shared::visible_keys(first + rows - 1, s.q_len, s.k_len, s.causal);
    for (std::int64_t key = 0; key < last; key += kSize) {
        const std::int64_t keys = s.k_len - key < kSize ? s.k_len - key : kSize;
        const std::int64_t kv_head = head / in.group;
        __syncthreads();
        load_tile<kDim, kSize>(in.k, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, 1.0f, tiles.k);
        load_tile<kDim, kSize>(in.v, s.k_begin + key, keys, kv_head, in.kv_heads, in.head_dim, 1.0f, tiles.v);
        __syncthreads();
        probabilities<kDim>(in, g, s, head, first, rows, key, tiles);
        __syncthreads();
        add_weighted_rows<kDim, kR>([&](int i, int j) { return tiles.ds[(ty * kR + i) * kStride + j]; },
                                    tiles.k, dq);
    }
    add_to<kDim, kR>(g.dq, s.q_begin + first, rows, head, in.heads, in.head_dim, g.writes.dq, dq);
}

// Segments may share rows of k, whose gradients two blocks must not add to at once: cuts them into lists, to
// be run one after the other, whose segments share none.
std::vector<std::vector<AttentionSegment>> without_shared_keys(
    const std::vector<AttentionSegment>& segments) {
    std::vector<std::vector<AttentionSegment>> lists;
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len == 0 || segment.k_len == 0) continue;
        const auto meets = [&](const AttentionSegment& other) {
            return segment.k_begin < other.k_begin + other.k_len &&
                   other.k_begin < segment.k_begin + segment.k_len;
        };
        // Behind the last list that it meets: sums into a row of k keep the order of the segments.
        std::size_t at = lists.size();
        while (at > 0 && std::none_of(lists[at - 1].begin(), lists[at - 1].end(), meets)) --at;
        if (at == lists.size()) lists.emplace_back();
        lists[at].push_back(segment);
    }
    return lists;
}

}  // namespace tandem::ops::TANDEM_KERNELS
