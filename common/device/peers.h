// GPUs of one process that read each other's memory. Between processes the handle brings that along
// (export.h).
#pragma once

#include "common/device/device.h"

namespace tandem {

// From here on kernels on `device` reach plain memory (an ExportArena) of the other GPU. Idempotent.
// Throws IpcRefused where the two have no peer access.
void enable_peer_access(Device device, Device memory);

}  // namespace tandem
