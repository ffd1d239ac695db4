// Chooses how the copy kernels prefetch on this machine: processors differ, so it is measured, for rows end to
// end and for rows with gaps between them.
#pragma once

#include <functional>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {

// TANDEM_PREFETCH (non_temporal, far, near) where it is set, else measured: about 10 ms.
// Throws InvalidArgument for another value.
Prefetch choose_prefetch(const CopyKernelSet& kernels, RowsLie rows);

// The fastest of all ways, measured several times each; `seconds` is one measurement. Other load only ever
// makes one longer, so the shortest counts; non_temporal stays unless another way is more than 3% faster.
Prefetch fastest_prefetch(const std::function<double(Prefetch)>& seconds);

}  // namespace tandem::ops::detail
