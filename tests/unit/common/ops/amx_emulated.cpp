// Compiled without AMX.
#include "common/ops/cpu/attention/amx.h"
#include "tests/unit/common/ops/amx_probe.h"

namespace tandem::testing {
namespace {

#include "tests/unit/common/ops/amx_probe.inl"

}  // namespace

const MultiplyTiles kMultiplyEmulated = multiply_arrays;

}  // namespace tandem::testing
