// Compiled for AVX512-BF16.
#include "common/ops/cpu/attention/pairs.h"
#include "tests/unit/common/ops/pairs_probe.h"

namespace tandem::testing {
namespace {

#include "tests/unit/common/ops/pairs_probe.inl"

}  // namespace

const PairsProbe kPairsHardware{probe_dot, probe_narrow, probe_power, probe_compare, probe_load};

}  // namespace tandem::testing
