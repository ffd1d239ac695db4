// The kernels of forward_pairs.h for AVX512-BF16. Compiled with its own -march; see forward_pairs.inl for the rules.
#include "common/ops/cpu/attention/forward_pairs.h"
#include "common/ops/cpu/attention/pairs.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/forward_pairs.inl"

}  // namespace

const ForwardPairs kForwardPairs{runs_avx512_bf16, pack_lanes, pack_values, lanes_tile,
                                 unpack_lanes,     rows_tile,  unpack_row};

}  // namespace tandem::ops::detail
