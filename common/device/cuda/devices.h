// The real GPUs of this machine.
#pragma once

#include <string>
#include <vector>

#include "common/device/devices.h"

namespace tandem::cuda {

struct Gpu {
    DeviceInfo info;
    std::string refusal;  // why Tandem cannot use it; empty: it can
};

struct Gpus {
    std::vector<Gpu> all;  // by CUDA's index
    std::string reason;    // why there is none at all
};

const Gpus& gpus();  // asked once; never throws
bool can_access_peer(Device from, Device memory);

}  // namespace tandem::cuda
