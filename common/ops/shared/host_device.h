// Functions that kernels share with the CPU's code: nvcc compiles them for both; always inlined.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_HOST_DEVICE __host__ __device__ __forceinline__
#define TANDEM_MEMBER __host__ __device__ __forceinline__
#else
#define TANDEM_HOST_DEVICE static inline __attribute__((always_inline))
#define TANDEM_MEMBER inline __attribute__((always_inline))
#endif
