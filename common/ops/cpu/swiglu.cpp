// SwiGLU on the CPU, in blocks of fp32.
#include "common/ops/swiglu.h"

#include <algorithm>
#include <array>

#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr std::int64_t kSwigluBlock = 1024;

TANDEM_CLONES void forward_loop(const float* gate, const float* up, float* y, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = shared::silu(gate[i]) * up[i];
}

TANDEM_CLONES void backward_loop(const float* dy, const float* gate, const float* up, float* dgate,
                                 float* dup, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gate[i];
        const float u = up[i];
        const float d = dy[i];
        const float s = shared::sigmoid(g);
        dgate[i] = d * u * shared::silu_gradient(g, s);
        dup[i] = d * (g * s);
    }
}

}  // namespace

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    stream.enqueue([=] {
        const std::int64_t total = gate.numel();
        detail::parallel_blocks(total, kSwigluBlock, [&](std::int64_t at, std::int64_t count) {
            std::array<float, 3 * kSwigluBlock> scratch;
            const float* g = detail::read_row(gate, at, count, scratch.data());
            const float* u = detail::read_row(up, at, count, scratch.data() + kSwigluBlock);
            float* out = detail::begin_row(y, at, scratch.data() + 2 * kSwigluBlock);
            forward_loop(g, u, out, count);
            detail::finish_row(y, at, count, out);
        });
    });
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    stream.enqueue([=] {
        std::array<float, 5 * kSwigluBlock> scratch;
        const std::int64_t total = gate.numel();
        for (std::int64_t at = 0; at < total; at += kSwigluBlock) {
            const std::int64_t count = std::min(kSwigluBlock, total - at);
            const float* d = detail::read_row(dy, at, count, scratch.data());
            const float* g = detail::read_row(gate, at, count, scratch.data() + kSwigluBlock);
            const float* u = detail::read_row(up, at, count, scratch.data() + 2 * kSwigluBlock);
            float* out_gate = detail::begin_row(dgate, at, scratch.data() + 3 * kSwigluBlock);
            float* out_up = detail::begin_row(dup, at, scratch.data() + 4 * kSwigluBlock);
            backward_loop(d, g, u, out_gate, out_up, count);
            detail::finish_row(dgate, at, count, out_gate);
            detail::finish_row(dup, at, count, out_up);
        }
    });
}

}  // namespace tandem::ops::cpu
