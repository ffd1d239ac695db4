// The language of the kernels: CUDA or, in tests, C++ with the threads of a block as fibers of the host, which
// runs the same sources where there is no GPU. A test's build names the header that makes C++ of them in
// TANDEM_KERNELS_ON_HOST. Each way has its namespace, so that a program can hold both.
#pragma once

#include "common/ops/backends.h"  // TANDEM_KERNELS, the namespace

#if defined(TANDEM_KERNELS_ON_HOST)
#include TANDEM_KERNELS_ON_HOST
#else
#include <cuda_runtime.h>

// For the host; a GPU faults by itself where an access is not aligned.
#define TANDEM_CHECK_ALIGNED(pointer, bytes)
// The block's dynamic shared memory.
#define TANDEM_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif
