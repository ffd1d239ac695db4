// Element-wise reduction of one piece over the ranks: in the order of the sources, in fp32 (int64 for int64),
// rounded once at the end. No communication here.
#pragma once

#include <cstddef>
#include <span>

#include "common/comm/communicator.h"

namespace tandem::comm {

// out = op(sources) element by element; with `accumulate` out += (float32 only). `out` may be one of the
// sources. `past_caches`: nobody reads `out` soon, so that it need not displace what is in the caches.
void reduce(std::span<const std::byte* const> sources, std::byte* out, std::size_t bytes, DType dtype,
            ReduceOp op, bool accumulate = false, bool past_caches = false);

// Throws InvalidArgument unless the pair can be reduced.
void require_reducible(DType dtype, ReduceOp op);

}  // namespace tandem::comm
