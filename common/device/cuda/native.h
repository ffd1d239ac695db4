// The CUDA stream behind a Stream: for the cuda folders only, which launch kernels and call libraries on it.
// The types are CUDA's own, named here so that this header compiles without the toolkit.
#pragma once

#include "common/device/stream.h"

struct CUstream_st;
typedef CUstream_st* cudaStream_t;

namespace tandem::cuda {

// Makes the stream's device current on the calling thread. Throws InvalidArgument unless `stream` is on a
// real GPU.
cudaStream_t native(Stream& stream);

}  // namespace tandem::cuda
