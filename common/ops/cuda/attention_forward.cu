// Flash attention, forward (Dao, "FlashAttention-2"): a block has 64 queries of one head and walks over their
// keys, 64 at a time, with a running softmax. All sums are fp32. Key tiles start at the segment's first key,
// so a row's values do not depend on what else is in the call.
#include <cmath>

#include "common/ops/attention.h"
#include "common/ops/cuda/attention_tile.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kTile = 64;
constexpr int kR = kTile / 16;
constexpr int kPStride = kTile + 4;
constexpr float kLowest = -3.402823466e38f;

template <int kDim>
constexpr std::size_t shared_bytes() {
    return sizeof(float) * (2 * kTile * (kDim + 4) + kTile * kPStride);
}
static_assert(shared_bytes<256>() <= kMostSharedBytes);

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
    forward_kernel(AttentionInputs in, std::int64_t tiles, Elements out, float* lse) {
    TANDEM_DYNAMIC_SHARED(memory);
    float* const q = reinterpret_cast<float*>(memory);
    float* const kv = q + kTile * (kDim + 4);
    float* const p = kv + kTile * (kDim + 4);
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const std::int64_t head = blockIdx.x % in.heads;
    const TilePlace place = tile_place(in, tiles - 1 - blockIdx.x / in.heads);
    const DeviceSegment& s = place.segment;
    const std::int64_t first = place.tile * kTile;
    const std::int64_t rows = s.q_len - first < kTile ? s.q_len - first : kTile;
    load_tile<kDim, kTile>(in.q, s.q_begin + first, rows, head, in.heads, in.head_dim, in.scale, q);

    std::int64_t seen[kR];
    float max[kR], sum[kR];
    Four acc[kR][kDim / 64] = {};
#pragma unroll
    for (int i = 0; i < kR; ++i) {
        const std::int64_t row = ty * kR + i;
        seen[i] = row < rows ? shared::visible_keys(first + row, s.q_len, s.k_len, s.causal) : 0;
        max[i] = kLowest;
        sum[i] = 0.0f;
    }
    const std::int64_t last = shared::visible_keys(first + rows - 1, s.q_len, s.k_len, s.causal);
    for (std::int64_t key = 0; key < last; key += kTile) {
        const std::int64_t keys = s.k_len - key < kTile ? s.k_len - key : kTile;
        __syncthreads();  // q is there; the values of the tile before have been used
        load_tile<kDim, kTile>(in.k, s.k_begin + key, keys, head / in.group, in.kv_heads, in.head_dim, 1.0f,
                               kv);
        __syncthreads();
        float scores[kR][kR];
        rows_times_rows<kDim, kR>(q, kv, scores);
#pragma unroll
        for (int i = 0; i < kR; ++i) {
            float most = max[i];
#pragma unroll
            for (int j = 0; j < kR; ++j) {
                if (key + tx + 16 * j >= seen[i]) continue;
                most = scores[i][j] > most ? scores[i][j] : most;
            }
            most = max16(most);
            const float shrink = shared::fast_exp(max[i] - most);
            float added = 0.0f;
#pragma unroll
            for (int j = 0; j < kR; ++j) {
                const bool visible = key + tx + 16 * j < seen[i];
                const float e = visible ? shared::fast_exp(scores[i][j] - most) : 0.0f;
                p[(ty * kR + i) * kPStride + tx + 16 * j] = e;
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
        load_tile<kDim, kTile>(in.v, s.k_begin + key, keys, head / in.group, in.kv_heads, in.head_dim, 1.0f,
                               kv);
        __syncthreads();
        add_weighted_rows<kDim, kR>([&](int i, int j) { return p[(ty * kR + i) * kPStride + j]; }, kv, acc);
    }
#pragma unroll
    for (int i = 0; i < kR; ++i) {
        const std::int64_t row = ty * kR + i;
        if (row >= rows) continue;
        const std::int64_t at = s.q_begin + first + row;
        const float factor = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
        if (tx == 0) lse[head * in.q_rows + at] = sum[i] == 0.0f ? -INFINITY : max[i] + logf(sum[i]);
        const std::int64_t base = (at * in.heads + head) * in.head_dim;
#pragma unroll
        for (int n = 0; n < kDim / 64; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const std::int64_t d = 4 * tx + 64 * n + e;
                if (d < in.head_dim) store1(out, base + d, acc[i][n].v[e] * factor);
            }
        }
    }
}

// Rows [begin, begin + count) of no segment.
__global__ void __launch_bounds__(kTileThreads)
    uncovered_kernel(std::int64_t begin, std::int64_t count, std::int64_t heads, std::int64_t head_dim,
                     std::int64_t q_rows, Elements out, float* lse) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t row = heads * head_dim;
    for (std::int64_t at = first; at < count * row; at += step) store1(out, begin * row + at, 0.0f);
    for (std::int64_t at = first; at < count * heads; at += step)
        lse[at / count * q_rows + begin + at % count] = -INFINITY;
}

void clear_uncovered(Work& work, const AttentionInputs& in, std::vector<AttentionSegment> segments,
                     const Tensor& out, const Tensor& lse) {
    std::sort(segments.begin(), segments.end(),
              [](const auto& a, const auto& b) { return a.q_begin < b.q_begin; });
    segments.push_back({in.q_rows, 0, 0, 0, true});
    std::int64_t covered = 0;
    for (const AttentionSegment& segment : segments) {
        const std::int64_t count = segment.q_begin - covered;
        if (count > 0) {
            work.launch(uncovered_kernel,
                        std::min(ceil_div(count * in.heads * in.head_dim, kTileThreads), kGridBlocks),
                        kTileThreads, 0, covered, count, in.heads, in.head_dim, in.q_rows,
                        elements(out, in.head_dim), lse.data<float>());
        }
        covered = std::max(covered, segment.q_begin + segment.q_len);
    }
}

}  // namespace

AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, float scale) {
    AttentionInputs in{};
    in.head_dim = q.dim(-1);
    in.q = elements(q, in.head_dim);
    in.k = elements(k, in.head_dim);
    in.v = elements(v, in.head_dim);
    in.q_rows = q.dim(0);
    in.heads = q.dim(1);
    in.kv_heads = k.dim(-2);
    in.group = in.heads / in.kv_heads;
    in.scale = scale;
    return in;
}

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse) {
    Work work(stream, "attention_forward");
    AttentionInputs in = attention_inputs(q, k, v, scale);
    clear_uncovered(work, in, segments, out, lse);
    Tiling tiling;
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len > 0) tiling.add(segment, segment.q_len, kTile);
    }
    if (tiling.tiles() == 0) return;
    tiling.upload(work, in);
    with_head_dim("attention_forward", in.head_dim, [&]<int kDim>() {
        work.launch(forward_kernel<kDim>, tiling.tiles() * in.heads, kTileThreads, shared_bytes<kDim>(), in,
                    tiling.tiles(), elements(out, in.head_dim), lse.data<float>());
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
