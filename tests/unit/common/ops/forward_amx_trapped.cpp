// Attention's kernels by AMX as they were compiled for it, trapped, in the place of those for AVX512-BF16.
#include "common/ops/cpu/attention/forward_pairs.h"
#include "tests/unit/common/ops/amx_traps.h"

namespace tandem::ops::detail {
namespace {

ForwardPairs trapped() {
    ForwardPairs kernels = kForwardAmx;
    kernels.runs_here = testing::traps_amx;
    return kernels;
}

}  // namespace

const ForwardPairs kForwardPairs = trapped();

}  // namespace tandem::ops::detail
