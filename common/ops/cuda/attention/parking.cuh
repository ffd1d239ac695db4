// Where blocks leave what they have of their rows while they go on with the next part of the keys: global
// memory that stays in the L2 cache, because it is as large as the blocks that run at a time want it, not as
// large as all blocks of a launch. A block takes a free place when it first needs one.
#pragma once

#include <cstdint>

#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// Sixteen bytes that a thread moves at once.
struct alignas(16) Quad {
    float v[4];
};

struct Parking {
    Quad* places;          // [count][kPlaceQuads of the kernel]
    std::uint32_t* taken;  // [count], 0 or 1
    std::uint32_t count;

    // For all threads of a block, which have a barrier in it; the place comes back in shared memory. Blocks that
    // find all places taken wait for one: their owners run already, and need nothing from those who wait.
    __device__ void take(std::uint32_t* place) const {
        if (threadIdx.x == 0) *place = free_place(blockIdx.x);
        __syncthreads();
    }
    __device__ void give_back([[maybe_unused]] std::uint32_t place) const {
#if !defined(TANDEM_KERNELS_ON_HOST)
        __syncthreads();  // all have read what they left there
        if (threadIdx.x == 0) leave(place);
#endif
    }
    // What one thread does of both for its block; the first place to look at may be any number.
    __device__ std::uint32_t free_place([[maybe_unused]] std::uint32_t first) const {
#if defined(TANDEM_KERNELS_ON_HOST)
        return blockIdx.x;  // blocks run one after another, and share nothing
#else
        std::uint32_t place = first % count;
        while (atomicExch(taken + place, 1u) != 0) place = place + 1 == count ? 0 : place + 1;
        __threadfence();
        return place;
#endif
    }
    __device__ void leave([[maybe_unused]] std::uint32_t place) const {
#if !defined(TANDEM_KERNELS_ON_HOST)
        __threadfence();
        atomicExch(taken + place, 0u);
#endif
    }
};

// Places for the blocks of a launch that go beyond one part.
inline Parking parking(Work& work, std::int64_t blocks, std::int64_t place_quads) {
#if !defined(TANDEM_KERNELS_ON_HOST)
    constexpr std::int64_t kPlaces = 512;  // more than any GPU's blocks at a time
    blocks = std::min(blocks, kPlaces);
#endif
    const Parking result{work.scratch<Quad>(blocks * place_quads), work.scratch<std::uint32_t>(blocks),
                         static_cast<std::uint32_t>(blocks)};
    work.clear(result.taken, static_cast<std::size_t>(blocks) * sizeof(std::uint32_t));
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
