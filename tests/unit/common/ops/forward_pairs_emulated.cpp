// Attention's kernels of pairs from plain C++ in the place of those for AVX512-BF16: what the program links against has
// no others.
#include "tests/unit/common/ops/forward_pairs_here.h"

namespace tandem::ops::detail {

const ForwardPairs kForwardPairs = [] {
    ForwardPairs kernels = testing::kForwardPairsEmulated;
    kernels.runs_here = [] { return true; };
    return kernels;
}();

}  // namespace tandem::ops::detail
