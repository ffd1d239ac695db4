// The emulated GPU as a kind of GPU: its table of functions, registered before main().
#include "common/device/device_backend.h"

#include "tests/emulated_gpu/emulated.h"
#include "tests/emulated_gpu/export.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/stream.h"

namespace tandem {
namespace emulated {
namespace {

const detail::Gpus& gpus() {
    static const detail::Gpus all = [] {
        detail::Gpus result;
        for (int i = 0; i < gpu_count(); ++i) {
            result.all.push_back({{fmt::format("emulated GPU {} (a test device, no GPU)", i), total_bytes(),
                                   0, "an emulated GPU has none", fmt::format("gpu {}", i)},
                                  ""});
        }
        return result;
    }();
    return all;
}

const detail::CpuKernels kKernels{.host_alias = host_alias, .launch = launch, .recording = recording};

[[maybe_unused]] const bool kRegistered = [] {
    static const detail::DeviceBackend table{
        .gpus = gpus,
        .pinned_pool = cpu_pool,
        .make_stream = make_stream,
        .pool = pool,
        .trim_pool = [](Device) {},
        .free_bytes = free_bytes,
        .can_access_peer = [](Device, Device) { return true; },
        .enable_peer_access = [](Device, Device) {},
        .make_export_arena = make_export_arena,
        .open_arena = open_arena,
        .export_range = export_range,
        .make_shared_event = make_shared_event,
        .open_shared_event = open_shared_event,
        .make_virtual_arena = make_virtual_arena,
        .open_virtual_arena = open_virtual_arena,
        .cpu_kernels = &kKernels,
    };
    detail::register_backend(table);
    return true;
}();

}  // namespace
}  // namespace emulated

bool is_emulated(Device device) {
    return device.type == DeviceType::cuda && device.index < emulated::gpu_count();
}

}  // namespace tandem
