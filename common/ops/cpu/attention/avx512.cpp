// Attention kernels for AVX-512 (x86-64-v4). Compiled with its own -march; see kernels.inl for the
// rules.
#include <immintrin.h>

#include "common/ops/cpu/attention/kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 16;
constexpr unsigned kPanel = 4;
constexpr unsigned kRows = 6;
using V = float __attribute__((vector_size(kWidth * 4)));
using VUnaligned __attribute__((vector_size(kWidth * 4), aligned(4), may_alias)) = float;
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return reinterpret_cast<V>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b),
                                               reinterpret_cast<__m512>(c)));
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/attention/kernels.inl"

}  // namespace

const AttentionKernels kAttentionAvx512{forward_tile, rows_tile,     backward_tile, transpose_tile,
                                        pack_float,   pack_bfloat16, "avx512"};

}  // namespace tandem::ops::detail
