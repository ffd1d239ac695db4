// Asks the kind of GPU.
#include "common/device/export.h"

#include "common/device/device_backend.h"

namespace tandem {
namespace {

const detail::DeviceBackend& backend_for_sharing(Device device) {
    require(device.type == DeviceType::cuda, "memory of the CPU has no GPU handle: use SharedArena");
    require_device(device);
    return detail::gpu_backend();
}

}  // namespace

ExportArena ExportArena::create(Device device, std::size_t bytes, std::string_view tag) {
    require(bytes > 0, "an export arena of zero bytes on {}", to_string(device));
    ExportArena arena;
    arena.impl_ = backend_for_sharing(device).make_export_arena(device, bytes, tag);
    return arena;
}

Device ExportArena::device() const {
    return impl_->device();
}
Span ExportArena::span() const {
    return impl_ ? impl_->span() : Span{};
}
IpcHandle ExportArena::handle() const {
    return impl_->handle();
}

OpenedArena OpenedArena::open(Device device, const IpcHandle& handle, std::size_t bytes) {
    OpenedArena arena;
    arena.impl_ = backend_for_sharing(device).open_arena(device, handle, bytes);
    return arena;
}

Device OpenedArena::device() const {
    return impl_->device();
}
Span OpenedArena::span() const {
    return impl_ ? impl_->span() : Span{};
}

ExportedRange export_range(Device device, ConstSpan range) {
    return backend_for_sharing(device).export_range(device, range);
}

SharedEvent SharedEvent::create(Device device) {
    SharedEvent event;
    event.impl_ = backend_for_sharing(device).make_shared_event(device);
    return event;
}

SharedEvent SharedEvent::open(Device device, const IpcHandle& handle) {
    SharedEvent event;
    event.impl_ = backend_for_sharing(device).open_shared_event(device, handle);
    return event;
}

IpcHandle SharedEvent::handle() const {
    return impl_->handle();
}
void SharedEvent::record(Stream& stream) {
    impl_->record(stream);
}
void SharedEvent::wait(Stream& stream) const {
    impl_->wait(stream);
}
void SharedEvent::wait(Deadline deadline) const {
    impl_->wait(deadline);
}

}  // namespace tandem
