// The kernels of the backward by tiles of AMX, compiled without AMX.
#include "common/ops/cpu/attention/amx.h"
#include "common/ops/cpu/attention/backward_pairs.h"
#include "common/ops/cpu/instruction_sets.h"
#include "tests/unit/common/ops/amx_traps.h"
#include "tests/unit/common/ops/backward_pairs_here.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;
#include "common/ops/cpu/attention/backward_amx.inl"

const BackwardPairsKernels kBackwardAmxEmulated{
    backward_amx_tile, pack_rows, pack_pairs, pack_turned, add_rows, {configure_tiles, release_tiles}};

}  // namespace

std::vector<const BackwardPairsKernels*> backward_pairs_here() {
    std::vector<const BackwardPairsKernels*> all = {&kBackwardAmxEmulated};
    if (runs_amx() || traps_amx()) all.push_back(&kBackwardAmx);
    return all;
}

}  // namespace tandem::testing
