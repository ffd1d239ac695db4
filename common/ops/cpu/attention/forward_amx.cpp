// The kernels of forward_pairs.h by tiles of AMX. Compiled with its own -march; see forward_lanes.inl for the rules.
#include "common/ops/cpu/attention/amx.h"
#include "common/ops/cpu/attention/forward_pairs.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/forward_amx.inl"

}  // namespace

const ForwardPairs kForwardAmx{runs_amx,     pack_lanes, pack_values, lanes_tile,
                               unpack_lanes, nullptr,    nullptr,     {configure_tiles, release_tiles}};

}  // namespace tandem::ops::detail
