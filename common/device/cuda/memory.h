// Memory of a real GPU, and host memory that it reaches.
#pragma once

#include "common/device/memory.h"

namespace tandem::cuda {

MemoryPool& pool(Device device);
MemoryPool& pinned_pool();

}  // namespace tandem::cuda
