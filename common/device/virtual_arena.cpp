// Asks the kind of GPU.
#include "common/device/virtual_arena.h"

#include "common/device/device_backend.h"

namespace tandem {
namespace {

const detail::DeviceBackend& backend_for_arena(Device device) {
    require(device.type == DeviceType::cuda, "virtual arenas are a GPU's; on the CPU: ReleasedPages");
    require_device(device);
    return detail::gpu_backend();
}

}  // namespace

VirtualArena VirtualArena::create(Device device, std::size_t bytes, std::string_view tag, bool pages) {
    require(bytes > 0, "a virtual arena of zero bytes on {}", to_string(device));
    VirtualArena arena;
    arena.impl_ = backend_for_arena(device).make_virtual_arena(device, bytes, tag, pages);
    return arena;
}

VirtualArena VirtualArena::open(Device device, int fd, std::size_t bytes) {
    require(bytes > 0, "a virtual arena of zero bytes on {}", to_string(device));
    VirtualArena arena;
    arena.impl_ = backend_for_arena(device).open_virtual_arena(device, fd, bytes);
    return arena;
}

Device VirtualArena::device() const {
    return impl_->device();
}
Span VirtualArena::span() const {
    return impl_ ? impl_->span() : Span{};
}
bool VirtualArena::has_pages() const {
    return impl_->has_pages();
}
void VirtualArena::release_pages() {
    impl_->release_pages();
}
void VirtualArena::restore_pages() {
    impl_->restore_pages();
}
int VirtualArena::export_fd() const {
    return impl_->export_fd();
}

}  // namespace tandem
