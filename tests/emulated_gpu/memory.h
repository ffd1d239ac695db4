// Memory of the emulated GPU: one range of addresses, of which the host may touch none, and their aliases.
#pragma once

#include <cstdint>
#include <string>

#include "common/device/memory.h"

namespace tandem::emulated {

MemoryPool& pool(Device device);
std::uint64_t total_bytes();  // of each device: TANDEM_EMULATED_GPU_MIB, 8192 unless set

// Takes `bytes` of the device's capacity, or throws OutOfMemory; and gives them back.
void take(Device device, std::size_t bytes);
void give_back(Device device, std::size_t bytes) noexcept;
std::uint64_t free_bytes(Device device);

// Addresses for `bytes` (rounded up to 2 MiB) with `fd` mapped at their alias, or fresh private memory with
// fd = -1. Takes nothing of a device's capacity, and does not own `fd`.
std::byte* map(int fd, std::size_t bytes);
void unmap(std::byte* data, std::size_t bytes) noexcept;

}  // namespace tandem::emulated
