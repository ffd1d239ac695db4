// The fastest softmax kernels that this machine runs.
#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::detail {

const SoftmaxKernels& softmax_kernels() {
    static const SoftmaxKernels& chosen = []() -> const SoftmaxKernels& {
        if (runs_v4()) return kSoftmaxAvx512;
        if (runs_v3()) return kSoftmaxAvx2;
        return kSoftmaxBaseline;
    }();
    return chosen;
}

}  // namespace tandem::ops::detail
