// The kernels of the forward by pairs, compiled without AVX512-BF16.
#include "common/ops/cpu/attention/pairs.h"
#include "tests/unit/common/ops/forward_pairs_here.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;
#include "common/ops/cpu/attention/forward_pairs.inl"

}  // namespace

const ops::detail::ForwardPairs kForwardPairsEmulated{nullptr,      pack_lanes, pack_values, lanes_tile,
                                                      unpack_lanes, rows_tile,  unpack_row};

}  // namespace tandem::testing
