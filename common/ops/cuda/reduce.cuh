// Sums over a warp or a block, in a fixed order: the same bits in every run.
#pragma once

#include <cstdint>

#include "common/ops/cuda/portable.cuh"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
}

// For blocks of whole warps, at most 1024 threads. Every thread gets the sum. `room` is shared memory for 32
// values that has no other use; the call starts and ends with a barrier.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* room) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) room[warp] = value;
    __syncthreads();
    T sum{};
    for (int i = 0; i < warps; ++i) sum += room[i];
    __syncthreads();
    return sum;
}

// Sums over rows that a block of kWarps takes one after another, with one barrier each: `room` is shared
// memory for 2 kWarps values that has no other use, and `turn` the number of the row in the block's order.
template <int kWarps>
__device__ __forceinline__ float block_row_sum(float value, float* room, int turn) {
    float* const mine = room + turn % 2 * kWarps;  // who is ahead writes the other half
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += mine[i];
    return sum;
}

// The values before this thread's, added up. Blocks as for block_sum; `room` for 33 values. `total` is the
// sum of all.
template <typename T>
__device__ __forceinline__ T block_exclusive_sum(T value, T* room, T& total) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    T inclusive = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T other = __shfl_up_sync(kAllLanes, inclusive, static_cast<unsigned>(step));
        if (lane >= step) inclusive += other;
    }
    if (lane == 31) room[warp] = inclusive;
    __syncthreads();
    T before{};
    T sum{};
    for (int i = 0; i < warps; ++i) {
        if (i == warp) before = sum;
        sum += room[i];
    }
    __syncthreads();
    total = sum;
    return before + inclusive - value;
}

}  // namespace tandem::ops::TANDEM_KERNELS
