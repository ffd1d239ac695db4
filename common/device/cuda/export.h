// Memory and events of a real GPU that another process opens (common/device/export.h).
#pragma once

#include "common/device/export_backend.h"

namespace tandem::cuda {

std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag);
std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes);
ExportedRange export_range(Device device, ConstSpan range);
std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device);
std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle);

}  // namespace tandem::cuda
