#include "engine_adapter/gpu_staging/exported.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/device/devices.h"

namespace tandem::engine {
namespace {

constexpr std::string_view kGpuPrefix = "GPU-";  // of an identity; PyTorch leaves it out

// PyTorch counts the readers of shared memory in a file of its own making, and goes on without where there is none.
constexpr const char* kNoCounters = "/tandem-no-counters";

std::string uuid_of(Device device) {
    const std::string identity = device_info(device).identity;
    return identity.starts_with(kGpuPrefix) ? identity.substr(kGpuPrefix.size()) : identity;
}

}  // namespace

Device staging_gpu(const ConnectOptions& options) {
    return options.nccl ? options.nccl->device : Device{DeviceType::cuda, 0};
}

bool is_here(Device gpu) {
    const std::vector<Device> all = available_devices();
    return std::find(all.begin(), all.end(), gpu) != all.end();
}

TorchCudaMemory exported_memory(const GpuStager& stager, std::uint64_t begin, std::uint64_t bytes) {
    const ExportedRange range = export_range(stager.device(), stager.memory().subspan(begin, bytes));
    const std::string handle(reinterpret_cast<const char*>(range.handle.data()), range.handle.size());
    return {uuid_of(stager.device()), handle, bytes, range.offset, kNoCounters, 0};
}

}  // namespace tandem::engine
