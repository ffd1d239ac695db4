// What a device has left, by what it says when asked for too much.
#pragma once

#include <cstdint>

#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/error.h"

namespace tandem::tests {

inline std::uint64_t free_bytes(Device device) {
    try {
        ExportArena::create(device, device_info(device).total_bytes + 1);
    } catch (const OutOfMemory& error) {
        return error.free_bytes();
    }
    return 0;
}

}  // namespace tandem::tests
