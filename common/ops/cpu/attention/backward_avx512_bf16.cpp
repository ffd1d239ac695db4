// The kernels of backward_pairs.h by AVX512-BF16. Compiled with its own -march; see backward_pairs.inl for the
// rules.
#include "common/ops/cpu/attention/backward_pairs.h"
#include "common/ops/cpu/attention/pairs.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/backward_pairs.inl"

}  // namespace

const BackwardPairsKernels kBackwardPairsBf16{backward_pairs_tile, pack_rows, pack_pairs, pack_turned,
                                              add_rows};

}  // namespace tandem::ops::detail
