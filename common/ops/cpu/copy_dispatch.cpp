// The fastest copy kernels that this machine runs.
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/copy_prefetch.h"

namespace tandem::ops::detail {
namespace {

const CopyKernelSet& widest_kernels() {
    if (__builtin_cpu_supports("x86-64-v4")) return kCopyAvx512;
    if (__builtin_cpu_supports("x86-64-v3")) return kCopyAvx2;
    return kCopyBaseline;
}

}  // namespace

const CopyKernels& copy_kernels() {
    static const CopyKernels& chosen = widest_kernels().with(choose_prefetch(widest_kernels()));
    return chosen;
}

}  // namespace tandem::ops::detail
