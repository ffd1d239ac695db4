// NVIDIA's GPUs as a kind of GPU.
#pragma once

#include "common/device/device_backend.h"

namespace tandem::cuda {

const detail::DeviceBackend& backend();

}  // namespace tandem::cuda
