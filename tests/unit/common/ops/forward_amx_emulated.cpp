// Attention's kernels by AMX from plain C++ in the place of those for AVX512-BF16: what the program links against has no
// others.
#include "common/ops/cpu/attention/amx.h"
#include "common/ops/cpu/attention/forward_pairs.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/attention/forward_amx.inl"

bool runs_anywhere() {
    return true;
}

}  // namespace

const ForwardPairs kForwardPairs{runs_anywhere, pack_lanes, pack_values, lanes_tile,
                                 unpack_lanes,  nullptr,    nullptr,     {configure_tiles, release_tiles}};

}  // namespace tandem::ops::detail
