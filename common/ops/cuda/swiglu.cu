// SwiGLU: eight elements a thread and turn.
#include "common/ops/cuda/eights.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/exp.h"
#include "common/ops/swiglu.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(Elements gate, Elements up, Elements y, Reach reach, std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float g[8], u[8];
        eight.load(gate, g);
        eight.load(up, u);
#pragma unroll
        for (int i = 0; i < 8; ++i) u[i] *= shared::silu(g[i]);
        eight.store(y, u);
    });
}

__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(Elements dy, Elements gate, Elements up, Elements dgate, Elements dup, Reach reach,
                           std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float d[8], g[8], u[8];
        eight.load(dy, d);
        eight.load(gate, g);
        eight.load(up, u);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float s = shared::sigmoid(g[i]);
            u[i] = d[i] * u[i] * shared::silu_gradient(g[i], s);
            d[i] = d[i] * (g[i] * s);
        }
        eight.store(dgate, u);
        eight.store(dup, d);
    });
}

}  // namespace

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    Work work(stream, "swiglu");
    const std::int64_t count = gate.numel();
    const Elements g = flat(gate), u = flat(up), to = flat(y);
    work.launch(swiglu_kernel, std::min(ceil_div(count, kThreads * kVector), kGridBlocks), kThreads, 0, g, u,
                to, reach(false, g, u, to), count);
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    Work work(stream, "swiglu_backward");
    const std::int64_t count = gate.numel();
    const Elements d = flat(dy), g = flat(gate), u = flat(up), dg = flat(dgate), du = flat(dup);
    work.launch(swiglu_backward_kernel, std::min(ceil_div(count, kThreads * kVector), kGridBlocks), kThreads,
                0, d, g, u, dg, du, reach(false, d, g, u, dg, du), count);
}

}  // namespace tandem::ops::TANDEM_KERNELS
