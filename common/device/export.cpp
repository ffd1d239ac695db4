// Which kind of GPU answers.
#include "common/device/export.h"

#include "common/device/devices.h"
#include "common/device/export_backend.h"

namespace tandem {
namespace {

bool emulated_gpu(Device device) {
    require(device.type == DeviceType::cuda, "memory of the CPU has no GPU handle: use SharedArena");
    require_device(device);
    return is_emulated(device);
}

}  // namespace

ExportArena ExportArena::create(Device device, std::size_t bytes, std::string_view tag) {
    require(bytes > 0, "an export arena of zero bytes on {}", to_string(device));
    ExportArena arena;
    arena.impl_ = emulated_gpu(device) ? emulated::make_export_arena(device, bytes, tag)
                                       : cuda::make_export_arena(device, bytes, tag);
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
    arena.impl_ = emulated_gpu(device) ? emulated::open_arena(device, handle, bytes)
                                       : cuda::open_arena(device, handle, bytes);
    return arena;
}

Device OpenedArena::device() const {
    return impl_->device();
}
Span OpenedArena::span() const {
    return impl_ ? impl_->span() : Span{};
}

ExportedRange export_range(Device device, ConstSpan range) {
    return emulated_gpu(device) ? emulated::export_range(device, range) : cuda::export_range(device, range);
}

SharedEvent SharedEvent::create(Device device) {
    SharedEvent event;
    event.impl_ =
        emulated_gpu(device) ? emulated::make_shared_event(device) : cuda::make_shared_event(device);
    return event;
}

SharedEvent SharedEvent::open(Device device, const IpcHandle& handle) {
    SharedEvent event;
    event.impl_ = emulated_gpu(device) ? emulated::open_shared_event(device, handle)
                                       : cuda::open_shared_event(device, handle);
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
