// Attention kernels for any machine. Compiled with its own -march; see kernels.inl for the rules.

#include "common/ops/cpu/attention/kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr int kWidth = 4;
constexpr unsigned kPanel = 2;
constexpr unsigned kRows = 4;
using V = float __attribute__((vector_size(kWidth * 4)));
using VUnaligned __attribute__((vector_size(kWidth * 4), aligned(4), may_alias)) = float;
using I = std::int32_t __attribute__((vector_size(kWidth * 4)));

inline __attribute__((always_inline)) V fused(V a, V b, V c) {
    return a * b + c;
}

#include "common/ops/cpu/exponential.inl"

#include "common/ops/cpu/attention/kernels.inl"

}  // namespace

const AttentionKernels kAttentionBaseline{forward_tile, rows_tile,     backward_tile, transpose_tile,
                                          pack_float,   pack_bfloat16, "baseline"};

}  // namespace tandem::ops::detail
