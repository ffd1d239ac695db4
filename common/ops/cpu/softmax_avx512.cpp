// Softmax kernels for AVX-512 (x86-64-v4). Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 16;
using V = float __attribute__((vector_size(kWidth * 4)));
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return reinterpret_cast<V>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b),
                                               reinterpret_cast<__m512>(c)));
}
inline __attribute__((always_inline)) V larger(V a, V b) {
    return reinterpret_cast<V>(_mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
inline __attribute__((always_inline)) V smaller(V a, V b) {
    return reinterpret_cast<V>(_mm512_min_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/softmax_kernels.inl"

}  // namespace

const SoftmaxKernels kSoftmaxAvx512{block_max, block_sums,       weights, tokens_between,
                                    gradient,  entropy_gradient, "avx512"};

}  // namespace tandem::ops::detail
