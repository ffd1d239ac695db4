// The kernels of the forward by pairs from plain C++, beside those of the hardware.
#pragma once

#include "common/ops/cpu/attention/forward_pairs.h"

namespace tandem::testing {

extern const ops::detail::ForwardPairs kForwardPairsEmulated;

}  // namespace tandem::testing
