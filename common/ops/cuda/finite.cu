// Looks for infinities and NaN: neighbouring threads take neighbouring elements; a second launch adds the blocks up.
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/finite.h"
#include "common/ops/shared/magnitude.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// The least of a block's values; as block_sum of reduce.cuh.
__device__ __forceinline__ std::int64_t block_least(std::int64_t value, std::int64_t* room) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const std::int64_t other = __shfl_xor_sync(kAllLanes, value, step);
        value = other < value ? other : value;
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    std::int64_t least = room[0];
    for (int i = 1; i < static_cast<int>(blockDim.x) / 32; ++i) least = room[i] < least ? room[i] : least;
    __syncthreads();
    return least;
}

__device__ __forceinline__ void write_found(std::int64_t count, std::int64_t first, NonFinite* to,
                                            std::int64_t* room) {
    count = block_sum(count, room);
    first = block_least(first, room);
    if (threadIdx.x == 0) {
        to->count = count;
        to->first = first;
    }
}

// first: `count` where there is none.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    find_kernel(const Bits* bits, std::uint32_t infinity, std::int64_t count, NonFinite* blocks) {
    __shared__ std::int64_t room[32];
    constexpr std::uint32_t kMagnitude = (1u << (8 * sizeof(Bits) - 1)) - 1;
    std::int64_t found = 0, first = count;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += step) {
        if ((bits[i] & kMagnitude) < infinity) continue;
        if (found++ == 0) first = i;
    }
    write_found(found, first, blocks + blockIdx.x, room);
}

__global__ void __launch_bounds__(kThreads)
    join_kernel(const NonFinite* blocks, std::int64_t count, std::int64_t none, NonFinite* all) {
    __shared__ std::int64_t room[32];
    std::int64_t found = 0, first = none;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        found += blocks[i].count;
        first = blocks[i].first < first ? blocks[i].first : first;
    }
    write_found(found, first, all, room);
}

template <typename Bits>
NonFinite find_in(Stream& stream, const Tensor& values) {
    NonFinite result;
    {
        Work work(stream, "find_non_finite");
        const std::int64_t count = values.numel();
        const std::int64_t blocks = std::min(ceil_div(count, kThreads * 8), kGridBlocks);
        auto* const found = work.scratch<NonFinite>(blocks + 1);
        work.launch(find_kernel<Bits>, blocks, kThreads, 0, reinterpret_cast<const Bits*>(values.raw()),
                    shared::infinity_of(values.dtype()), count, found);
        work.launch(join_kernel, 1, kThreads, 0, static_cast<const NonFinite*>(found), blocks, count,
                    found + blocks);
        work.download(found + blocks, std::span<NonFinite>(&result, 1));
        work.synchronize();
    }
    if (result.count == 0) result.first = -1;
    return result;
}

}  // namespace

NonFinite find_non_finite(Stream& stream, const Tensor& values) {
    if (values.numel() == 0) return {};
    switch (dtype_size(values.dtype())) {
        case 4:
            return find_in<std::uint32_t>(stream, values);
        case 2:
            return find_in<std::uint16_t>(stream, values);
        default:
            return find_in<std::uint8_t>(stream, values);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
