// The kernels of backward_pairs.h by tiles of AMX. Compiled with its own -march; see backward_lanes.inl for the rules.
#include "common/ops/cpu/attention/amx.h"
#include "common/ops/cpu/attention/backward_pairs.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/backward_amx.inl"

}  // namespace

const BackwardPairsKernels kBackwardAmx{backward_amx_tile, pack_rows, pack_pairs,
                                        pack_turned,       add_rows,  {configure_tiles, release_tiles}};

}  // namespace tandem::ops::detail
