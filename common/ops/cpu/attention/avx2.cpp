// Attention kernels for AVX2 and FMA (x86-64-v3). Compiled with its own -march; see kernels.inl for
// the rules.
#include <immintrin.h>

#include "common/ops/cpu/attention/kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 8;
constexpr unsigned kPanel = 2;
constexpr unsigned kRows = 6;
using V = float __attribute__((vector_size(kWidth * 4)));
using VUnaligned __attribute__((vector_size(kWidth * 4), aligned(4), may_alias)) = float;
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return reinterpret_cast<V>(_mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b),
                                               reinterpret_cast<__m256>(c)));
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/attention/kernels.inl"

}  // namespace

const AttentionKernels kAttentionAvx2{forward_tile, rows_tile,     backward_tile, transpose_tile,
                                      pack_float,   pack_bfloat16, "avx2"};

}  // namespace tandem::ops::detail
