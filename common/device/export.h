// GPU memory and events that another process opens by a handle of 64 raw bytes. The exporter owns and frees
// the memory; a process that opened it only unmaps. Made of plain cuMemAlloc memory (pool memory cannot be
// exported).
//
// As with CUDA: a process cannot open its own handle, the exporter must live while a handle is being opened,
// and both run as the same user. Of the CPU's memory: SharedArena.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/device/stream.h"
#include "common/error.h"

namespace tandem {

// A cudaIpcMemHandle_t or cudaIpcEventHandle_t, as it is: what torch's rebuild_cuda_tensor takes without a
// prefix.
using IpcHandle = std::array<std::byte, 64>;

// The memory or event cannot be shared, or not with this process: says what, where, and what to do.
class IpcRefused : public Error {
  public:
    using Error::Error;
};

// Memory that other processes may open. Copies share it; the last one waits for the device's work and frees
// it.
class ExportArena {
  public:
    ExportArena() = default;
    // Throws OutOfMemory, DeviceUnavailable; InvalidArgument on the CPU. Contents undefined. Counted under
    // `tag`; an empty tag leaves it out, for arenas whose parts are counted.
    static ExportArena create(Device device, std::size_t bytes, std::string_view tag = "arena");

    Device device() const;
    Span span() const;
    std::byte* data() const { return span().data; }
    std::size_t bytes() const { return span().bytes; }
    IpcHandle handle() const;  // throws IpcRefused

    struct Impl;  // what a kind of device implements

  private:
    std::shared_ptr<Impl> impl_;
};

// Another process's memory, mapped on `device` (the GPU that holds it, or one with peer access to it).
class OpenedArena {
  public:
    OpenedArena() = default;
    // `bytes` must not exceed what was exported. Throws IpcRefused.
    static OpenedArena open(Device device, const IpcHandle& handle, std::size_t bytes);

    Device device() const;
    Span span() const;

    struct Impl;  // what a kind of device implements

  private:
    std::shared_ptr<Impl> impl_;
};

// A range's position in the allocation that holds it: handles are of whole allocations.
struct ExportedRange {
    IpcHandle handle{};
    std::uint64_t offset = 0;            // of the range in the allocation
    std::uint64_t allocation_bytes = 0;  // of the whole
};

// For memory that this process allocated, an ExportArena's or another library's (torch). Throws IpcRefused
// for memory of a stream-ordered pool, of VMM, or of the host.
ExportedRange export_range(Device device, ConstSpan range);

// An event that orders streams of two processes. record() in one; then tell the other (a message); then
// wait() there: it waits for what was recorded last.
class SharedEvent {
  public:
    SharedEvent() = default;
    static SharedEvent create(Device device);
    static SharedEvent open(Device device, const IpcHandle& handle);  // throws IpcRefused

    IpcHandle handle() const;
    void record(Stream& stream);
    void wait(Stream& stream) const;     // later work of the stream starts after it
    void wait(Deadline deadline) const;  // blocks the calling thread; throws DeadlineExceeded

    struct Impl;  // what a kind of device implements

  private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace tandem
