// Every set of copy kernels that this machine runs, with every way of prefetching.
#pragma once

#include <vector>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::testing {

inline std::vector<const ops::detail::CopyKernels*> copy_kernels_here() {
    std::vector<const ops::detail::CopyKernelSet*> sets = {&ops::detail::kCopyBaseline};
    if (__builtin_cpu_supports("x86-64-v3")) sets.push_back(&ops::detail::kCopyAvx2);
    if (__builtin_cpu_supports("x86-64-v4")) sets.push_back(&ops::detail::kCopyAvx512);
    std::vector<const ops::detail::CopyKernels*> all;
    for (const auto* set : sets) all.insert(all.end(), {&set->non_temporal, &set->far, &set->near});
    return all;
}

}  // namespace tandem::testing
