// Exported memory, events and virtual arenas of the emulated GPU.
#pragma once

#include "common/device/export_backend.h"
#include "common/device/virtual_arena.h"

namespace tandem::emulated {

std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag);
std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes);
ExportedRange export_range(Device device, ConstSpan range);
std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device);
std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle);

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device device, std::size_t bytes, std::string_view tag,
                                                       bool pages);
std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device device, int fd, std::size_t bytes);

}  // namespace tandem::emulated
