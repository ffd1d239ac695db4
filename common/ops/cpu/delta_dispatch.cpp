// The fastest delta kernels that this machine runs.
#include "common/ops/cpu/delta_kernels.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::ops::detail {

const DeltaKernels& delta_kernels() {
    static const DeltaKernels& chosen = []() -> const DeltaKernels& {
        if (runs_v4()) return runs_vbmi2() ? kDeltaVbmi2 : kDeltaAvx512;
        if (runs_v3()) return kDeltaAvx2;
        return kDeltaBaseline;
    }();
    return chosen;
}

}  // namespace tandem::ops::detail
