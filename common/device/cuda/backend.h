// NVIDIA's GPUs as a kind of GPU: its table, and the functions in it that nothing else in this folder calls,
// each defined in the file that is named after it.
#pragma once

#include "common/device/device_backend.h"

namespace tandem::cuda {

const detail::DeviceBackend& backend();

std::shared_ptr<detail::StreamBackend> make_stream(Device device, std::string name);

std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag);
std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes);
ExportedRange export_range(Device device, ConstSpan range);
std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device);
std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle);

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device device, std::size_t bytes, std::string_view tag,
                                                       bool pages);
std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device device, int fd, std::size_t bytes);

}  // namespace tandem::cuda
