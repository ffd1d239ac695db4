// The kernels of the backward by pairs that this machine runs.
#pragma once

#include <vector>

#include "common/ops/cpu/attention/backward_pairs.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::testing {

extern const ops::detail::BackwardPairsKernels kBackwardPairsEmulated;  // from plain C++

inline std::vector<const ops::detail::BackwardPairsKernels*> backward_pairs_here() {
    std::vector<const ops::detail::BackwardPairsKernels*> all = {&kBackwardPairsEmulated};
    if (ops::detail::runs_avx512_bf16()) all.push_back(&ops::detail::kBackwardPairsBf16);
    return all;
}

}  // namespace tandem::testing
