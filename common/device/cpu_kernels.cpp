#include "common/device/cpu_kernels.h"

#include "common/device/device_backend.h"
#include "common/error.h"

namespace tandem {

bool computes_on_cpu(Device device) {
    return device.type == DeviceType::cpu || detail::gpu_backend().cpu_kernels != nullptr;
}

std::byte* host_alias(std::byte* data) {
    const detail::CpuKernels* kernels = detail::registered_cpu_kernels();
    return kernels == nullptr ? data : kernels->host_alias(data);
}

const std::byte* host_alias(const std::byte* data) {
    return host_alias(const_cast<std::byte*>(data));
}

void launch_on_cpu(Stream& stream, std::function<void()> work) {
    const detail::CpuKernels* kernels = detail::registered_cpu_kernels();
    require(kernels != nullptr, "stream '{}' is on {}, which launches nothing on the CPU", stream.name(),
            to_string(stream.device()));
    kernels->launch(stream, std::move(work));
}

bool recording(Stream& stream) {
    const detail::CpuKernels* kernels = detail::registered_cpu_kernels();
    return kernels != nullptr && kernels->recording(stream);
}

}  // namespace tandem
