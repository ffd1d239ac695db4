// What the kernels are written in: CUDA, or, in tests, C++ with the threads of a block as fibers of the host
// (tests/support/kernels_on_host.h), which runs the very same sources where there is no GPU. Each way has its
// namespace, so that a program can hold both.
#pragma once

#if defined(TANDEM_KERNELS_ON_HOST)
#include "tests/support/kernels_on_host.h"
#define TANDEM_KERNELS on_host
#else
#include <cuda_runtime.h>
#define TANDEM_KERNELS cuda
// The block's dynamic shared memory.
#define TANDEM_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif
