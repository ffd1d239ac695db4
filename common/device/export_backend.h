// The interfaces behind export.h, which a kind of GPU implements (device_backend.h).
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

}  // namespace tandem
