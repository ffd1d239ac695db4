// The real GPUs of this machine.
#pragma once

#include "common/device/device_backend.h"

namespace tandem::cuda {

const detail::Gpus& gpus();  // asked once; never throws
bool can_access_peer(Device from, Device memory);
void enable_peer_access(Device device, Device memory);  // throws IpcRefused

}  // namespace tandem::cuda
