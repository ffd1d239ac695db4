// Attention's kernels of pairs from plain C++ in the place of those for AVX512-BF16: what the program links against has
// no others.
#include "common/ops/cpu/attention/forward_pairs.h"
#include "common/ops/cpu/attention/pairs.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/forward_pairs.inl"

bool runs_anywhere() {
    return true;
}

}  // namespace

const ForwardPairs kForwardPairs{runs_anywhere, pack_lanes, pack_values, lanes_tile,
                                 unpack_lanes,  rows_tile,  unpack_row};

}  // namespace tandem::ops::detail
