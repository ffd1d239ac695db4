// Memory of a real GPU, and host memory that it reaches.
#pragma once

#include "common/device/memory.h"

namespace tandem::cuda {

MemoryPool& pool(Device device);
void trim_pool(Device device);
MemoryPool& pinned_pool();
std::uint64_t free_bytes(Device device);  // as the driver counts them; 0 when it does not answer

}  // namespace tandem::cuda
