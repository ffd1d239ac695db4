// A kind of GPU, as the table of functions behind this folder's headers. A build with CUDA has one (cuda/); a
// program may register another, which takes its place where it has GPUs (tests/emulated_gpu). Nothing else in
// the product asks what kind a GPU is. For common/device and implementations of a kind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/device/devices.h"
#include "common/device/export_backend.h"
#include "common/device/memory.h"
#include "common/device/stream_backend.h"
#include "common/device/virtual_arena.h"

namespace tandem::detail {

struct Gpu {
    DeviceInfo info;
    std::string refusal;  // why Tandem cannot use it; empty: it can
};

struct Gpus {
    std::vector<Gpu> all;  // by index
    std::string reason;    // why there is none at all
};

// For a GPU without kernels of its own: see common/device/cpu_kernels.h.
struct CpuKernels {
    std::byte* (*host_alias)(std::byte* data);
    void (*launch)(Stream& stream, std::function<void()> work);
    bool (*recording)(Stream& stream);
};

// All but gpus() and pinned_pool() are called for a GPU that gpus() lists and does not refuse.
struct DeviceBackend {
    const Gpus& (*gpus)() = nullptr;         // asked often; never throws for a missing GPU
    MemoryPool& (*pinned_pool)() = nullptr;  // with no GPU: cpu_pool()

    std::shared_ptr<StreamBackend> (*make_stream)(Device device, std::string name) = nullptr;
    MemoryPool& (*pool)(Device device) = nullptr;
    void (*trim_pool)(Device device) = nullptr;
    std::uint64_t (*free_bytes)(Device device) = nullptr;
    bool (*can_access_peer)(Device from, Device memory) = nullptr;
    void (*enable_peer_access)(Device device, Device memory) = nullptr;  // throws IpcRefused

    std::shared_ptr<ExportArena::Impl> (*make_export_arena)(Device device, std::size_t bytes,
                                                            std::string_view tag) = nullptr;
    std::shared_ptr<OpenedArena::Impl> (*open_arena)(Device device, const IpcHandle& handle,
                                                     std::size_t bytes) = nullptr;
    ExportedRange (*export_range)(Device device, ConstSpan range) = nullptr;
    std::shared_ptr<SharedEvent::Impl> (*make_shared_event)(Device device) = nullptr;
    std::shared_ptr<SharedEvent::Impl> (*open_shared_event)(Device device, const IpcHandle& handle) = nullptr;

    std::shared_ptr<VirtualArena::Impl> (*make_virtual_arena)(Device device, std::size_t bytes,
                                                              std::string_view tag, bool pages) = nullptr;
    std::shared_ptr<VirtualArena::Impl> (*open_virtual_arena)(Device device, int fd,
                                                              std::size_t bytes) = nullptr;

    const CpuKernels* cpu_kernels = nullptr;  // null: it has kernels of its own
};

// The one that serves this process's GPUs: the registered one where it has any, else CUDA's.
const DeviceBackend& gpu_backend();

// Before main(). The table must outlive the process's use of devices. One at most.
void register_backend(const DeviceBackend& backend);

// The CpuKernels of the registered one, whether it has GPUs or not; null: none. Asks no device anything.
const CpuKernels* registered_cpu_kernels();

}  // namespace tandem::detail
