#include "common/device/peers.h"

#include "common/device/cuda/devices.h"
#include "common/device/devices.h"

namespace tandem {

void enable_peer_access(Device device, Device memory) {
    require_device(device);
    require_device(memory);
    if (device == memory || is_emulated(device)) return;
    cuda::enable_peer_access(device, memory);
}

}  // namespace tandem
