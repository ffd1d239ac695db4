// What a build without CUDA answers in place of this folder.
#include "common/device/cuda/devices.h"
#include "common/device/cuda/memory.h"
#include "common/device/cuda/native.h"
#include "common/device/cuda/stream.h"
#include "common/device/export_backend.h"
#include "common/device/virtual_arena.h"

namespace tandem {
namespace {

constexpr const char* kReason =
    "this build of Tandem has no CUDA: configure with -DTANDEM_CUDA=ON (preset cuda)";

}  // namespace

namespace cuda {

const Gpus& gpus() {
    static const Gpus none{{}, kReason};
    return none;
}

void say_when_absent() {}

MemoryPool& pool(Device) {
    throw DeviceUnavailable(kReason);
}

void trim_pool(Device) {
    throw DeviceUnavailable(kReason);
}

bool can_access_peer(Device, Device) {
    throw DeviceUnavailable(kReason);
}

void enable_peer_access(Device, Device) {
    throw DeviceUnavailable(kReason);
}

std::uint64_t free_bytes(Device) {
    throw DeviceUnavailable(kReason);
}

MemoryPool& pinned_pool() {
    return cpu_pool();
}

cudaStream_t native(Stream&) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<ExportArena::Impl> make_export_arena(Device, std::size_t, std::string_view) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<OpenedArena::Impl> open_arena(Device, const IpcHandle&, std::size_t) {
    throw DeviceUnavailable(kReason);
}

ExportedRange export_range(Device, ConstSpan) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device, std::size_t, std::string_view, bool) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device, int, std::size_t) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<SharedEvent::Impl> make_shared_event(Device) {
    throw DeviceUnavailable(kReason);
}

std::shared_ptr<SharedEvent::Impl> open_shared_event(Device, const IpcHandle&) {
    throw DeviceUnavailable(kReason);
}

}  // namespace cuda

std::shared_ptr<detail::StreamBackend> detail::make_cuda_stream(Device, std::string) {
    throw DeviceUnavailable(kReason);
}

}  // namespace tandem
