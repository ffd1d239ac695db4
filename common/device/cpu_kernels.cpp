#include "common/device/cpu_kernels.h"

#include "common/device/devices.h"
#include "common/device/emulated.h"

namespace tandem {

bool computes_on_cpu(Device device) {
    return device.type == DeviceType::cpu || is_emulated(device);
}

std::byte* host_alias(std::byte* data) {
    return emulated::host_alias(data);
}

const std::byte* host_alias(const std::byte* data) {
    return emulated::host_alias(data);
}

void launch_on_cpu(Stream& stream, std::function<void()> work) {
    emulated::launch(stream, std::move(work));
}

bool recording(Stream& stream) {
    return emulated::recording(stream);
}

}  // namespace tandem
