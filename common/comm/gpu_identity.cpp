#include "common/comm/gpu_identity.h"

#include <cstdlib>

#include "common/device/devices.h"

namespace tandem::comm {

std::string gpu_identity(Device device) {
    std::string index = std::to_string(device.index);
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && *visible != '\0' && !is_emulated(device)) {
        std::string list = visible;
        for (int skip = 0; skip < device.index && list.find(',') != std::string::npos; ++skip)
            list = list.substr(list.find(',') + 1);
        index = list.substr(0, list.find(','));
    }
    return "gpu " + index;
}

}  // namespace tandem::comm
