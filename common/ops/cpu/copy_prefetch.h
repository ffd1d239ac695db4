// Which way of prefetching the copy kernels take on this machine: processors differ, so it is measured.
#pragma once

#include <functional>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {

// TANDEM_PREFETCH (non_temporal, far, near) where it is set, else measured: about 10 ms, once a process.
// Throws InvalidArgument for another value.
Prefetch choose_prefetch(const CopyKernelSet& kernels);

// The fastest of all ways by several looks at each, `seconds` being one look. Others that share the machine
// only ever make a look longer, so the shortest counts; what is within 3% of non_temporal leaves it at that.
Prefetch fastest_prefetch(const std::function<double(Prefetch)>& seconds);

}  // namespace tandem::ops::detail
