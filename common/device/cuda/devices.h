// The real GPUs of this machine.
#pragma once

#include <string>
#include <vector>

#include "common/device/devices.h"

namespace tandem::cuda {

struct Gpus {
    std::vector<DeviceInfo> usable;  // by index
    std::string reason;              // why there is none, or why those past `usable` are left out
};

const Gpus& gpus();  // asked once; never throws

}  // namespace tandem::cuda
