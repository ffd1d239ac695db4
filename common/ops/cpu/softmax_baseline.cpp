// Softmax kernels for any machine. Compiled with its own -march; see attention/kernels.inl for the rules.

#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 4;
using V = float __attribute__((vector_size(kWidth * 4)));
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return a * b + c;
}
inline __attribute__((always_inline)) V larger(V a, V b) {
    return a > b ? a : b;
}
inline __attribute__((always_inline)) V smaller(V a, V b) {
    return a < b ? a : b;
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/softmax_kernels.inl"

}  // namespace

const SoftmaxKernels kSoftmaxBaseline{block_max, block_sums,       weights,   tokens_between,
                                      gradient,  entropy_gradient, "baseline"};

}  // namespace tandem::ops::detail
