#include "common/identity/gpu_identity.h"

#include "common/device/devices.h"

namespace tandem {

std::string gpu_identity(Device device) {
    return device_info(device).identity;
}

}  // namespace tandem
