// What kernels say to a GPU of compute capability 9.0 below C++, beside instructions.cuh: barriers of some of a
// block's threads, bulk copies. Where kernels run on the host, tests/support/kernels_on_host_barriers.h takes its place.
#pragma once

#include "common/ops/cuda/instructions.cuh"

#if !defined(TANDEM_KERNELS_ON_HOST)
#include <cuda.h>  // CUtensorMap
#endif

// Kernels that use these, or warpgroup.cuh, have a body only where this is defined: the other architectures of
// the same binary have no such instructions.
#if defined(TANDEM_KERNELS_ON_HOST) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TANDEM_HOPPER_CODE
#endif

namespace tandem::ops::TANDEM_KERNELS {

// Named barriers, 1 to 15 (0 is __syncthreads'), of so many threads, whole warps: `meet` waits until all have
// arrived, `arrive_at` arrives and goes on. Memory as with __syncthreads.
__device__ __forceinline__ void meet(unsigned barrier, unsigned threads) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::meet(barrier, threads);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#endif
}
__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned threads) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::arrive_at(barrier, threads);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#endif
}

// An mbarrier, 8 bytes of shared memory: its phase ends when so many have arrived and all bytes that arrivals
// expect have come; then the next one begins. Made by one thread; others use it after a fence_mbarriers of that
// thread and a barrier of the block.
__device__ __forceinline__ void init_mbarrier(SharedAddress mbarrier, unsigned arrivals) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::init_mbarrier(mbarrier, arrivals);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier), "r"(arrivals) : "memory");
#endif
}
__device__ __forceinline__ void fence_mbarriers() {
#if !defined(TANDEM_KERNELS_ON_HOST)
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// The thread arrives for itself: what other lanes have done is before it only if they are, by __syncwarp.
__device__ __forceinline__ void arrive(SharedAddress mbarrier) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::arrive(mbarrier);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier) : "memory");
#endif
}
__device__ __forceinline__ void arrive_expecting(SharedAddress mbarrier, unsigned bytes) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::arrive_expecting(mbarrier, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(bytes)
                 : "memory");
#endif
}
// Waits for the end of the current phase if its number is of this parity, 0 or 1; returns at once if that phase is
// over. The first phase is 0: the wait for parity 1 passes at first.
__device__ __forceinline__ void wait_for(SharedAddress mbarrier, unsigned parity) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::wait_for(mbarrier, parity);
#else
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(mbarrier),
        "r"(parity)
        : "memory");
#endif
}

// A tensor of three dimensions in global memory, and the box of it that a copy brings: a parameter of the kernel
// (__grid_constant__). Made on the host: cuTensorMapEncodeTiled; fibers::tensor_map.
#if defined(TANDEM_KERNELS_ON_HOST)
using TensorMap = fibers::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

// The box whose first element is (x, y, z) to shared memory, at a multiple of 128, zeros where the tensor has
// nothing; the box's bytes come under the mbarrier, by one thread.
__device__ __forceinline__ void copy_box(SharedAddress to, const TensorMap& map, SharedAddress mbarrier,
                                         int x, int y, int z) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::bring_box(to, map, mbarrier, x, y, z);
#else
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
        "%5}], [%2];" ::"r"(to),
        "l"(&map), "r"(mbarrier), "r"(x), "r"(y), "r"(z)
        : "memory");
#endif
}

// Bytes in a row: all three multiples of 16.
__device__ __forceinline__ void copy_bulk(SharedAddress to, const void* from, unsigned bytes,
                                          SharedAddress mbarrier) {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::bring_bulk(to, from, bytes, mbarrier);
#else
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(mbarrier)
        : "memory");
#endif
}

// What the thread has written, and what others have before it by barriers, is for tensor cores and bulk copies to
// read after this and a barrier.
__device__ __forceinline__ void fence_proxies() {
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::fence_proxies();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// All threads of a warpgroup leave registers to others, or take some that others have left, and then have so many
// each, a multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#if !defined(TANDEM_KERNELS_ON_HOST)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if !defined(TANDEM_KERNELS_ON_HOST)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// Where the block runs.
__device__ __forceinline__ unsigned multiprocessor() {
#if defined(TANDEM_KERNELS_ON_HOST)
    return blockIdx.x;
#else
    unsigned id;
    asm("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
#endif
}

}  // namespace tandem::ops::TANDEM_KERNELS
