#include "common/device/device_backend.h"

#include "common/device/counting/counting.h"

#if TANDEM_WITH_CUDA
#include "common/device/cuda/backend.h"
#endif

namespace tandem::detail {
namespace {

const DeviceBackend* g_registered = nullptr;

#if TANDEM_WITH_CUDA
const DeviceBackend& built_in() {
    return cuda::backend();
}
#else
const DeviceBackend& built_in() {
    static const Gpus none{{},
                           "this build of Tandem has no CUDA: configure with -DTANDEM_CUDA=ON (preset cuda)"};
    static const DeviceBackend backend{.gpus = []() -> const Gpus& { return none; }, .pinned_pool = cpu_pool};
    return backend;
}
#endif

}  // namespace

const DeviceBackend& gpu_backend() {
    if (only_counts()) return counting::gpu_backend();
    if (g_registered != nullptr && !g_registered->gpus().all.empty()) return *g_registered;
    return built_in();
}

void register_backend(const DeviceBackend& backend) {
    require(g_registered == nullptr, "two kinds of GPU were registered beside CUDA's");
    g_registered = &backend;
}

const CpuKernels* registered_cpu_kernels() {
    return g_registered == nullptr ? nullptr : g_registered->cpu_kernels;
}

}  // namespace tandem::detail
