// The fastest copy kernels that this machine runs.
#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {

const CopyKernels& copy_kernels() {
    static const CopyKernels& chosen = []() -> const CopyKernels& {
        if (__builtin_cpu_supports("x86-64-v4")) return kCopyAvx512;
        if (__builtin_cpu_supports("x86-64-v3")) return kCopyAvx2;
        return kCopyBaseline;
    }();
    return chosen;
}

}  // namespace tandem::ops::detail
