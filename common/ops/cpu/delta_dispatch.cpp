// The fastest delta kernels that this machine runs.
#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {

const DeltaKernels& delta_kernels() {
    static const DeltaKernels& chosen = []() -> const DeltaKernels& {
        if (__builtin_cpu_supports("x86-64-v4")) return kDeltaAvx512;
        if (__builtin_cpu_supports("x86-64-v3")) return kDeltaAvx2;
        return kDeltaBaseline;
    }();
    return chosen;
}

}  // namespace tandem::ops::detail
