// Virtual arenas of a real GPU (common/device/virtual_arena.h).
#pragma once

#include "common/device/virtual_arena.h"

namespace tandem::cuda {

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device device, std::size_t bytes, std::string_view tag,
                                                       bool pages);
std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device device, int fd, std::size_t bytes);

}  // namespace tandem::cuda
