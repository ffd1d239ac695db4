// Runs CUDA kernels on the host, for tests: block after block, the threads of a block as fibers that change
// at barriers and shuffles only. The order of the fibers changes from block to block, so a kernel that
// forgets a barrier gives other values than one that does not; where kernels are instrumented
// (kernel_races.h), every race is found. Broken rules of barriers and shuffles end a launch: threads of a
// block (lanes of a warp) at different ones, a value taken from a lane that has ended. What it cannot show:
// speed.
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

#define TANDEM_CALLED __attribute__((noinline))  // its return address says where in the kernel
TANDEM_CALLED void block_barrier();
TANDEM_CALLED void warp_barrier(unsigned mask);
std::byte* shared_memory();

// The value that another lane gives at the same place: `mine` goes to all lanes of the warp, that of lane
// `from` comes back. At most 8 bytes.
TANDEM_CALLED std::uint64_t exchange_bits(unsigned mask, std::uint64_t mine, unsigned from);
// An instruction of all 32 lanes, which must all be there: each leaves its operands, and the last one to arrive
// calls `perform` with all of them. `site`: where in the kernel. Orders no memory, as on a GPU.
void together(void* operands, void (*perform)(const std::uint64_t* operands), const void* site);
// Of all lanes that have not ended.
TANDEM_CALLED unsigned ballot(unsigned mask, bool mine);

// Throws when threads of a block wait for a barrier that others have left behind, and with what the racecheck
// has found.
void run_blocks(std::int64_t blocks, int threads, std::size_t shared_bytes,
                const std::function<void()>& kernel);
void check_aligned(const void* pointer, std::size_t alignment);  // aborts with a message

}  // namespace fibers

#define TANDEM_ON_HOST inline __attribute__((always_inline))

#define __global__
#define __device__
#define __host__
#define __forceinline__ TANDEM_ON_HOST
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __shared__ static
#define threadIdx (::fibers::here().thread)
#define blockIdx (::fibers::here().block)
#define blockDim (::fibers::here().block_size)
#define gridDim (::fibers::here().grid_size)
#define TANDEM_CHECK_ALIGNED(pointer, bytes) ::fibers::check_aligned(pointer, bytes)
#define TANDEM_DYNAMIC_SHARED(name) \
    unsigned char* name = reinterpret_cast<unsigned char*>(::fibers::shared_memory())

namespace fibers {

template <typename T>
TANDEM_ON_HOST T exchange(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = exchange_bits(mask, bits, from);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace fibers

TANDEM_ON_HOST void __syncthreads() {
    ::fibers::block_barrier();
}
TANDEM_ON_HOST void __syncwarp(unsigned mask = 0xffffffffu) {
    ::fibers::warp_barrier(mask);
}
template <typename T>
TANDEM_ON_HOST T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return ::fibers::exchange(mask, value, ::fibers::here().thread.x % 32 ^ static_cast<unsigned>(lanes));
}
template <typename T>
TANDEM_ON_HOST T __shfl_sync(unsigned mask, T value, int lane) {
    return ::fibers::exchange(mask, value, static_cast<unsigned>(lane));
}
template <typename T>
TANDEM_ON_HOST T __shfl_up_sync(unsigned mask, T value, unsigned step) {
    const unsigned lane = ::fibers::here().thread.x % 32;
    return ::fibers::exchange(mask, value, lane >= step ? lane - step : lane);
}
template <typename T>
TANDEM_ON_HOST T __shfl_down_sync(unsigned mask, T value, unsigned step) {
    const unsigned lane = ::fibers::here().thread.x % 32;
    return ::fibers::exchange(mask, value, lane + step < 32 ? lane + step : lane);
}
TANDEM_ON_HOST unsigned __ballot_sync(unsigned mask, bool predicate) {
    return ::fibers::ballot(mask, predicate);
}
TANDEM_ON_HOST unsigned atomicAdd(unsigned* to, unsigned value) {
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}

#include "tests/support/kernels_on_host_barriers.h"
#include "tests/support/kernels_on_host_bulk.h"
#include "tests/support/kernels_on_host_instructions.h"
#include "tests/support/kernels_on_host_products.h"
