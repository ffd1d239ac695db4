// A part of a sequence's keys for up to eight query heads that share them, by tensor cores: a key costs few
// instructions, so that reading the cache bounds the kernel. A warp takes sixteen keys K with their values V
// at a time. What it computes, and which part its lane 4 g + t holds (instructions.cuh):
//
//   1  K, from the cache               keys g, g + 8; of every 32 dimensions the eight from 8 t on
//   2  V, from the cache               keys 2t, 2t + 1, 2t + 8, 2t + 9; of every 64 the eight from 8 g on
//   3  scores [keys, heads] = K · Q^T  keys g, g + 8; heads 2t, 2t + 1
//   4  weights = exp(scores - max)     the same
//   5  weights, transposed             keys as in 2; head g
//   6  acc [dimensions, heads] +=      dimensions as in 2; heads 2t, 2t + 1
//      V^T · weights
//
// 1 and 2 are loads of 16 bytes, all on their way before 3, in the order in which the products want them:
// nothing passes through shared memory. A weight is the sum of two bfloat16 numbers, a large and a small one:
// as exact as float32 against values in bfloat16.
#pragma once

#include "common/ops/cuda/attention/decode_parts.cuh"
#include "common/ops/cuda/instructions.cuh"
#include "common/ops/cuda/reduce.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kMmaHeads = 8;
inline constexpr int kMmaKeys = 16;

// The low halves of two words, or the high ones, `first` below.
__device__ __forceinline__ std::uint32_t low_halves(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x5410);
#else
    return (first & 0xffffu) | second << 16;
#endif
}
__device__ __forceinline__ std::uint32_t high_halves(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x7632);
#else
    return first >> 16 | (second & 0xffff0000u);
#endif
}

// Merges a value over the lanes of one t = lane % 4, that is over keys.
template <typename Merge>
__device__ __forceinline__ float over_keys(float value, const Merge& merge) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) value = merge(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
}

// Bfloat16, head_dim = kDim, whole accesses, fewer than 2^31 rows. Grid: (sequence, kv head, kMmaHeads of its
// group, part).
template <int kDim>
__global__ void __launch_bounds__(kDecodeThreads, 3)
    part_mma_kernel(Elements q, Cache c, std::uint32_t head_blocks, Parts parts) {
    constexpr int kWarps = kDecodeThreads / 32;
    constexpr int kChunks = kDim / 32;  // of a key's row: 64 bytes, four lanes
    constexpr int kHalves = kDim / 64;  // of a value's row: 128 bytes, eight lanes
    __shared__ Walkers<kMmaHeads, kWarps, kDim> walkers;
    const DecodeItem item(c, static_cast<std::uint32_t>(parts.count), head_blocks, kMmaHeads);
    if (item.begin >= item.end) return;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int g = lane / 4, t = lane % 4;

    // Q, b of product 3: head g, dimensions 32 i + 8 t and the seven after it.
    Words query[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
        query[i] = Words{};
        if (g < item.heads)
            query[i] =
                load16(q.data + 2 * ((item.sequence * c.heads + item.head + g) * kDim + 32 * i + 8 * t));
    }
    // c of product 6: tile i has dimensions 64 (i / 4) + 8 g + 2 (i % 4) and the next; heads 2t and 2t + 1.
    float acc[4 * kHalves][4] = {};
    float max[2] = {kLowest, kLowest}, sum[2] = {0.0f, 0.0f};  // of heads 2t and 2t + 1; a lane's own keys
    const std::int64_t stride = c.kv_heads * kDim;
    const auto row_of = [&](int first) {  // lanes 0 … 15 look up a key each
        const int key = first + lane % kMmaKeys;
        return key < item.end ? static_cast<int>(item.row(c, key)) : -1;
    };
    const int step = kWarps * kMmaKeys;
    int first = item.begin + warp * kMmaKeys;
    int next = row_of(first);
    for (; first < item.end; first += step) {
        // 1: K.
        const int rows = next;
        Words key[2][kChunks], value[4][kHalves];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int row = __shfl_sync(kAllLanes, rows, g + 8 * n);
            const std::byte* const from = c.k.data + 2 * (row * stride + item.kv_head * kDim + 8 * t);
#pragma unroll
            for (int i = 0; i < kChunks; ++i) {
                key[n][i] = Words{};
                if (row >= 0) key[n][i] = load16(from + 64 * i);
            }
        }
        // 2: V.
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int row = __shfl_sync(kAllLanes, rows, 2 * t + n % 2 + 8 * (n / 2));
            const std::byte* const from = c.v.data + 2 * (row * stride + item.kv_head * kDim + 8 * g);
#pragma unroll
            for (int i = 0; i < kHalves; ++i) {
                value[n][i] = Words{};
                if (row >= 0) value[n][i] = load16(from + 128 * i);
            }
        }
        next = row_of(first + step);  // the rows of the next turn, so that no load waits for its address

        // 3: scores, of keys g (0, 1) and g + 8, heads 2t (0, 2) and 2t + 1.
        float scores[4] = {};
#pragma unroll
        for (int i = 0; i < kChunks; ++i) {
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                const std::uint32_t a[4] = {key[0][i].w[n], key[1][i].w[n], key[0][i].w[n + 1],
                                            key[1][i].w[n + 1]};
                const std::uint32_t b[2] = {query[i].w[n], query[i].w[n + 1]};
                multiply(scores, a, b);
            }
        }
        // 4: the running softmax of heads 2t and 2t + 1; max is the same in all lanes of a head.
        float shrink[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            scores[h] = first + g < item.end ? scores[h] * c.scale : kLowest;
            scores[2 + h] = first + g + 8 < item.end ? scores[2 + h] * c.scale : kLowest;
            const float largest = scores[h] > scores[2 + h] ? scores[h] : scores[2 + h];
            const float most = over_keys(largest > max[h] ? largest : max[h],
                                         [](float a, float b) { return a > b ? a : b; });
            shrink[h] = shared::fast_exp(max[h] - most);
            max[h] = most;
            scores[h] = first + g < item.end ? shared::fast_exp(scores[h] - most) : 0.0f;
            scores[2 + h] = first + g + 8 < item.end ? shared::fast_exp(scores[2 + h] - most) : 0.0f;
            sum[h] = sum[h] * shrink[h] + scores[h] + scores[2 + h];
        }
        // 5: the weights as b of product 6, split and transposed.
        std::uint32_t large[2], small[2];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const std::uint32_t pair = bfloat16_pair(scores[2 * n], scores[2 * n + 1]);
            const float low = scores[2 * n] - shared::float_of(pair << 16);
            const float high = scores[2 * n + 1] - shared::float_of(pair & 0xffff0000u);
            large[n] = transpose(pair);
            small[n] = transpose(bfloat16_pair(low, high));
        }
        // 6: what was summed so far shrinks to the new max, and the values are added.
#pragma unroll
        for (int i = 0; i < 4 * kHalves; ++i) {
#pragma unroll
            for (int k = 0; k < 4; ++k) acc[i][k] *= shrink[k % 2];
            const int half = i / 4, word = i % 4;
            const std::uint32_t w[4] = {value[0][half].w[word], value[1][half].w[word],
                                        value[2][half].w[word], value[3][half].w[word]};
            const std::uint32_t a[4] = {low_halves(w[0], w[1]), high_halves(w[0], w[1]),
                                        low_halves(w[2], w[3]), high_halves(w[2], w[3])};
            multiply(acc[i], a, large);
            multiply(acc[i], a, small);
        }
    }
    // What this warp found goes to shared memory, where the block merges its warps.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        sum[h] = over_keys(sum[h], [](float a, float b) { return a + b; });
        if (g == 0) {
            walkers.max[2 * t + h][warp] = max[h];
            walkers.sum[2 * t + h][warp] = sum[h];
        }
#pragma unroll
        for (int i = 0; i < 4 * kHalves; ++i) {
            const int dimension = 64 * (i / 4) + 8 * g + 2 * (i % 4);
            walkers.values[2 * t + h][warp][dimension] = acc[i][h];
            walkers.values[2 * t + h][warp][dimension + 1] = acc[i][2 + h];
        }
    }
    __syncthreads();
    walkers.merge(c, item, parts);
}

}  // namespace tandem::ops::TANDEM_KERNELS
