// A GPU as other processes of its host would name it.
#pragma once

#include <string>

#include "common/device/device.h"

namespace tandem {

// "GPU-8a3f0c12-…", the GPU's own name, whatever CUDA_VISIBLE_DEVICES says in each process and however it
// says it. Throws DeviceUnavailable.
std::string gpu_identity(Device device);

}  // namespace tandem
