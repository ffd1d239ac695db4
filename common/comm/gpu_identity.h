// A GPU as other processes of its host would name it.
#pragma once

#include <string>

#include "common/device/device.h"

namespace tandem::comm {

// "gpu 3": counted before CUDA_VISIBLE_DEVICES renumbers; an emulated GPU by its own number.
std::string gpu_identity(Device device);

}  // namespace tandem::comm
