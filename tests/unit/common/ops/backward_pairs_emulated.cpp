// The kernels of the backward by pairs, compiled without AVX512-BF16.
#include "common/ops/cpu/attention/backward_pairs.h"
#include "common/ops/cpu/attention/pairs.h"
#include "common/ops/cpu/instruction_sets.h"
#include "tests/unit/common/ops/backward_pairs_here.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;
#include "common/ops/cpu/attention/backward_pairs.inl"

const BackwardPairsKernels kBackwardPairsEmulated{backward_pairs_tile, pack_rows, pack_pairs, pack_turned,
                                                  add_rows};

}  // namespace

std::vector<const BackwardPairsKernels*> backward_pairs_here() {
    std::vector<const BackwardPairsKernels*> all = {&kBackwardPairsEmulated};
    if (runs_avx512_bf16()) all.push_back(&kBackwardPairsBf16);
    return all;
}

}  // namespace tandem::testing
