// Runs CUDA kernels on the host, for tests: block after block, the threads of a block as fibers that change
// at barriers and shuffles only. The order of the fibers changes from block to block, so a kernel that
// forgets a barrier gives other values than one that does not. What it cannot show: races that need real
// concurrency, and speed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace fibers {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

struct Place {
    Index thread, block, block_size, grid_size;
};
const Place& here();

void block_barrier();
void warp_barrier();
std::byte* exchange_slot(unsigned lane);  // 16 bytes of the lane of this warp
std::byte* shared_memory();

// Throws when threads of a block wait for a barrier that others have left behind.
void run_blocks(std::int64_t blocks, int threads, std::size_t shared_bytes,
                const std::function<void()>& kernel);
void check_aligned(const void* pointer, std::size_t alignment);  // aborts with a message

template <typename T>
T exchange(T value, unsigned from_lane) {
    static_assert(sizeof(T) <= 16);
    std::memcpy(exchange_slot(here().thread.x % 32), &value, sizeof(T));
    warp_barrier();
    T result;
    std::memcpy(&result, exchange_slot(from_lane % 32), sizeof(T));
    warp_barrier();
    return result;
}

}  // namespace fibers

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static
#define threadIdx (::fibers::here().thread)
#define blockIdx (::fibers::here().block)
#define blockDim (::fibers::here().block_size)
#define gridDim (::fibers::here().grid_size)
#define TANDEM_DYNAMIC_SHARED(name) \
    unsigned char* name = reinterpret_cast<unsigned char*>(::fibers::shared_memory())

inline void __syncthreads() {
    ::fibers::block_barrier();
}
inline void __syncwarp(unsigned = 0xffffffffu) {
    ::fibers::warp_barrier();
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return ::fibers::exchange(value, ::fibers::here().thread.x % 32 ^ static_cast<unsigned>(mask));
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
    return ::fibers::exchange(value, static_cast<unsigned>(lane));
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned step) {
    const unsigned lane = ::fibers::here().thread.x % 32;
    return ::fibers::exchange(value, lane >= step ? lane - step : lane);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (::fibers::exchange(predicate, lane)) bits |= 1u << lane;
    }
    return bits;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {  // fibers change at barriers only
    const unsigned before = *to;
    *to += value;
    return before;
}
inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}
