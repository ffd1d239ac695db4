#include "common/device/peers.h"

#include "common/device/device_backend.h"

namespace tandem {

void enable_peer_access(Device device, Device memory) {
    require_device(device);
    require_device(memory);
    if (device == memory) return;
    detail::gpu_backend().enable_peer_access(device, memory);
}

}  // namespace tandem
