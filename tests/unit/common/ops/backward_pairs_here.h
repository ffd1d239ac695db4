// The kernels of the backward by pairs that this machine runs, of those that have the same bits.
#pragma once

#include <vector>

#include "common/ops/cpu/attention/backward_pairs.h"

namespace tandem::testing {

// From plain C++ first, then from the hardware. Programs differ: pairs (backward_pairs_emulated.cpp), or tiles of AMX.
std::vector<const ops::detail::BackwardPairsKernels*> backward_pairs_here();

}  // namespace tandem::testing
