// CUDA's return codes as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "common/error.h"

namespace tandem::ops::cuda {

inline void check(std::string_view op, std::string_view call, cudaError_t code) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // not again from the next call
    throw CudaError(fmt::format("{}: {}", op, call), cudaGetErrorName(code), cudaGetErrorString(code));
}

}  // namespace tandem::ops::cuda
