// Decode without tensor cores, for float32 caches and head sizes that decode_mma.cuh has not: some threads share
// a key, several such teams walk over the keys side by side, and what they found is merged in a fixed order.
#pragma once

#include "common/ops/cuda/attention/decode_parts.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kPlainPart = 256;  // keys
inline constexpr int kPlainHeads = 4;   // query heads that share a walk over the keys
inline constexpr int kPlainKeys = 2;    // keys that are looked at together
inline constexpr float kLowest = -3.402823466e38f;

// The walkers of a block, merged in order into the part's results; a thread has a dimension of a head.
template <int kHeads, int kWalkers, int kDim>
struct Walkers {
    float max[kHeads][kWalkers];
    float sum[kHeads][kWalkers];
    float values[kHeads][kWalkers][kDim];

    __device__ void merge(const Cache& c, const DecodeItem& item, const Parts& parts) const {
        for (int n = static_cast<int>(threadIdx.x); n < item.heads * kDim; n += kDecodeThreads) {
            const int h = n / kDim;
            const int at = n % kDim;
            if (at >= c.head_dim) continue;
            float most = kLowest;
            for (int w = 0; w < kWalkers; ++w) most = max[h][w] > most ? max[h][w] : most;
            float value = 0.0f, total = 0.0f;
            for (int w = 0; w < kWalkers; ++w) {
                const float weight = shared::fast_exp(max[h][w] - most);
                total += sum[h][w] * weight;
                value += values[h][w][at] * weight;
            }
            const std::int64_t to = (item.sequence * c.heads + item.head + h) * parts.count + item.part;
            parts.values[to * c.head_dim + at] = value;
            if (at == 0) {
                parts.max[to] = most;
                parts.sum[to] = total;
            }
        }
    }
};

// kDim / 8 threads share a key, eight dimensions each; several such teams walk side by side. Grid: (sequence,
// kv head, kPlainHeads of its group, part).
template <int kDim>
__global__ void __launch_bounds__(kDecodeThreads)
    part_fp32_kernel(Elements q, Cache c, std::uint32_t head_blocks, Parts parts) {
    constexpr int kTeam = kDim / 8;
    constexpr int kTeams = kDecodeThreads / kTeam;
    __shared__ Walkers<kPlainHeads, kTeams, kDim> walkers;
    const DecodeItem item(c, static_cast<std::uint32_t>(parts.count), head_blocks, kPlainHeads, kPlainPart);
    if (item.begin >= item.end) return;
    const int heads = item.heads;
    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int member = static_cast<int>(threadIdx.x) % kTeam;
    const std::int64_t d = member * kVector;
    const std::int64_t left = c.head_dim - d;  // dimensions from here on; none for the last members, perhaps

    float query[kPlainHeads][8], acc[kPlainHeads][8] = {}, max[kPlainHeads], sum[kPlainHeads];
#pragma unroll
    for (int h = 0; h < kPlainHeads; ++h) {
        if (h < heads) {
            load8(q, (item.sequence * c.heads + item.head + h) * c.head_dim + d, left, query[h]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) query[h][i] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) query[h][i] *= c.scale;
        max[h] = kLowest;
        sum[h] = 0.0f;
    }
    // All teams make the same number of turns: their lanes meet in the shuffles.
    for (int turn = item.begin; turn < item.end; turn += kTeams * kPlainKeys) {
        std::int64_t rows[kPlainKeys];
        float scores[kPlainKeys][kPlainHeads];
#pragma unroll
        for (int n = 0; n < kPlainKeys; ++n) {
            const int key = turn + n * kTeams + team;
            rows[n] = -1;
            if (key < item.end) rows[n] = (item.row(c, key) * c.kv_heads + item.kv_head) * c.head_dim + d;
        }
#pragma unroll
        for (int n = 0; n < kPlainKeys; ++n) {
            float k[8] = {};
            if (rows[n] >= 0) load8(c.k, rows[n], left, k);
#pragma unroll
            for (int h = 0; h < kPlainHeads; ++h) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; ++i) dot += query[h][i] * k[i];
#pragma unroll
                for (int step = kTeam / 2; step > 0; step /= 2) dot += __shfl_xor_sync(kAllLanes, dot, step);
                scores[n][h] = dot;
            }
        }
#pragma unroll
        for (int h = 0; h < kPlainHeads; ++h) {
            float most = max[h];
#pragma unroll
            for (int n = 0; n < kPlainKeys; ++n) {
                if (rows[n] >= 0 && scores[n][h] > most) most = scores[n][h];
            }
            const float shrink = shared::fast_exp(max[h] - most);
            sum[h] *= shrink;
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[h][i] *= shrink;
#pragma unroll
            for (int n = 0; n < kPlainKeys; ++n) {
                scores[n][h] = rows[n] >= 0 ? shared::fast_exp(scores[n][h] - most) : 0.0f;
                sum[h] += scores[n][h];
            }
            max[h] = most;
        }
#pragma unroll
        for (int n = 0; n < kPlainKeys; ++n) {
            float v[8] = {};
            if (rows[n] >= 0) load8(c.v, rows[n], left, v);
#pragma unroll
            for (int h = 0; h < kPlainHeads; ++h) {
#pragma unroll
                for (int i = 0; i < 8; ++i) acc[h][i] += scores[n][h] * v[i];
            }
        }
    }
#pragma unroll
    for (int h = 0; h < kPlainHeads; ++h) {
        if (member == 0) {
            walkers.max[h][team] = max[h];
            walkers.sum[h][team] = sum[h];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) walkers.values[h][team][d + i] = acc[h][i];
    }
    __syncthreads();
    walkers.merge(c, item, parts);
}

// Grid: (sequence, head).
__global__ void __launch_bounds__(kDecodeThreads)
    merge_fp32_kernel(Parts parts, const std::int32_t* lengths, std::int64_t heads, std::int64_t head_dim,
                      Elements out) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t length = lengths[row / heads];
    const std::int64_t count = (length + kPlainPart - 1) / kPlainPart;
    float most = kLowest;
    for (std::int64_t p = 0; p < count; ++p) {
        const float max = parts.max[row * parts.count + p];
        most = max > most ? max : most;
    }
    for (std::int64_t d = threadIdx.x; d < head_dim; d += kDecodeThreads) {
        float value = 0.0f, total = 0.0f;
        for (std::int64_t p = 0; p < count; ++p) {
            const std::int64_t at = row * parts.count + p;
            const float weight = shared::fast_exp(parts.max[at] - most);
            total += parts.sum[at] * weight;
            value += parts.values[at * head_dim + d] * weight;
        }
        store1(out, row * head_dim + d, total == 0.0f ? 0.0f : value / total);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
