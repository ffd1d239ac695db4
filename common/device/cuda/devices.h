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
// For who goes on without a GPU: a build with CUDA that finds none says so, once. Who asked for one hears it
// from the refusal.
void say_when_absent();
bool can_access_peer(Device from, Device memory);
void enable_peer_access(Device device, Device memory);  // throws IpcRefused

}  // namespace tandem::cuda
