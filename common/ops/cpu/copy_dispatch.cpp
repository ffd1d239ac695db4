// The fastest copy kernels that this machine runs.
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/copy_prefetch.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::ops::detail {
namespace {

const CopyKernelSet& widest_kernels() {
    if (runs_v4()) return kCopyAvx512;
    if (runs_v3()) return kCopyAvx2;
    return kCopyBaseline;
}

}  // namespace

const CopyKernels& copy_kernels() {
    static const CopyKernels& chosen = widest_kernels().with(choose_prefetch(widest_kernels()));
    return chosen;
}

}  // namespace tandem::ops::detail
