// Memory of a real GPU, and host memory that it reaches.
#pragma once

#include <string_view>

#include "common/device/memory.h"

namespace tandem::cuda {

MemoryPool& pool(Device device);
// What was freed in the device's pool stays for the next, until trim_pool(): the driver's default unmaps it at each wait,
// and maps it anew for the next kernel's scratch. Makes the device current. Throws CudaError.
void keep_freed(Device device);
void trim_pool(Device device);
MemoryPool& pinned_pool();  // with no GPU: cpu_pool(), and the log says why, once
// Memory that no stream orders. Freeing it waits for the device's work. Both leave the calling thread's
// current device as it was, and use no GPU beside `device`. Throws OutOfMemory, CudaError.
std::byte* allocate_lasting(Device device, std::size_t bytes, std::string_view tag);
void free_lasting(Device device, std::byte* data) noexcept;
std::uint64_t free_bytes(Device device);  // as the driver counts them; 0 when it does not answer

}  // namespace tandem::cuda
