// SwiGLU: eight elements a thread and turn.
#include "common/ops/cuda/backend.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(Elements gate, Elements up, Elements y, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
    std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
    for (; at < count; at += step) {
        float g[8], u[8];
        load8(gate, at, count - at, g);
        load8(up, at, count - at, u);
#pragma unroll
        for (int i = 0; i < 8; ++i) u[i] *= shared::silu(g[i]);
        store8(y, at, count - at, u);
    }
}

__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(Elements dy, Elements gate, Elements up, Elements dgate, Elements dup,
                           std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
    std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
    for (; at < count; at += step) {
        float d[8], g[8], u[8];
        load8(dy, at, count - at, d);
        load8(gate, at, count - at, g);
        load8(up, at, count - at, u);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float s = shared::sigmoid(g[i]);
            u[i] = d[i] * u[i] * shared::silu_gradient(g[i], s);
            d[i] = d[i] * (g[i] * s);
        }
        store8(dgate, at, count - at, u);
        store8(dup, at, count - at, d);
    }
}

}  // namespace

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    Work work(stream, "swiglu");
    const std::int64_t count = gate.numel();
    work.launch(swiglu_kernel, std::min(ceil_div(count, kThreads * kVector), kGridBlocks), kThreads, 0,
                flat(gate), flat(up), flat(y), count);
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    Work work(stream, "swiglu_backward");
    const std::int64_t count = gate.numel();
    work.launch(swiglu_backward_kernel, std::min(ceil_div(count, kThreads * kVector), kGridBlocks), kThreads,
                0, flat(dy), flat(gate), flat(up), flat(dgate), flat(dup), count);
}

}  // namespace tandem::ops::TANDEM_KERNELS
