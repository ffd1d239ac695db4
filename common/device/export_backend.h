// What a kind of GPU implements behind export.h. For common/device only.
#pragma once

#include "common/device/export.h"

namespace tandem {

struct ExportArena::Impl {
    virtual ~Impl() = default;
    virtual Device device() const = 0;
    virtual Span span() const = 0;
    virtual IpcHandle handle() const = 0;
};

struct OpenedArena::Impl {
    virtual ~Impl() = default;
    virtual Device device() const = 0;
    virtual Span span() const = 0;
};

struct SharedEvent::Impl {
    virtual ~Impl() = default;
    virtual IpcHandle handle() const = 0;
    virtual void record(Stream& stream) = 0;
    virtual void wait(Stream& stream) = 0;
    virtual void wait(Deadline deadline) = 0;
};

namespace emulated {
std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag);
std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes);
ExportedRange export_range(Device device, ConstSpan range);
std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device);
std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle);
}  // namespace emulated

namespace cuda {
std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag);
std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes);
ExportedRange export_range(Device device, ConstSpan range);
std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device);
std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle);
}  // namespace cuda

}  // namespace tandem
