// Softmax kernels for AVX2 and FMA (x86-64-v3). Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 8;
using V = float __attribute__((vector_size(kWidth * 4)));
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return reinterpret_cast<V>(_mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b),
                                               reinterpret_cast<__m256>(c)));
}
inline __attribute__((always_inline)) V larger(V a, V b) {
    return reinterpret_cast<V>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
inline __attribute__((always_inline)) V smaller(V a, V b) {
    return reinterpret_cast<V>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/softmax_kernels.inl"

}  // namespace

const SoftmaxKernels kSoftmaxAvx2{block_max, block_sums,       weights, tokens_between,
                                  gradient,  entropy_gradient, "avx2"};

}  // namespace tandem::ops::detail
