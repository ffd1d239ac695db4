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

const CopyKernels& copy_kernels(RowsLie rows) {
    const auto choose = [](RowsLie lie) -> const CopyKernels& {
        return widest_kernels().with(choose_prefetch(widest_kernels(), lie));
    };
    if (rows == RowsLie::apart) {
        static const CopyKernels& chosen = choose(RowsLie::apart);
        return chosen;
    }
    static const CopyKernels& chosen = choose(RowsLie::end_to_end);
    return chosen;
}

}  // namespace tandem::ops::detail
