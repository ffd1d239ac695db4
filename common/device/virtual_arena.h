// GPU memory whose address stays while its pages come and go: what a sleeping engine or an offloaded trainer
// gives back to the GPU that they share. Where the device offers it, another process opens it by a file
// descriptor (SCM_RIGHTS), which also works where CUDA IPC is refused; it has no 64-byte handle (torch takes
// those: ExportArena).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/device/device.h"

namespace tandem {

// Copies share the same memory.
class VirtualArena {
  public:
    VirtualArena() = default;
    // Contents undefined; with pages now, or from the first restore_pages() on. Counted under `tag` while it
    // has them. Throws OutOfMemory, DeviceUnavailable (also where the device has no virtual memory
    // management); InvalidArgument on the CPU.
    static VirtualArena create(Device device, std::size_t bytes, std::string_view tag, bool pages = true);
    // Another process's, by the descriptor of its export_fd(), which stays the caller's. Throws IpcRefused.
    static VirtualArena open(Device device, int fd, std::size_t bytes);

    Device device() const;
    Span span() const;
    bool has_pages() const;
    // Waits for the device's work; the contents are lost. A process that opened the arena keeps the pages
    // until it closes it.
    void release_pages();
    // Fresh pages, contents undefined, no longer shared with a process that opened the arena. Throws
    // OutOfMemory.
    void restore_pages();
    int export_fd() const;  // a new descriptor, the caller's to close; throws IpcRefused

    struct Impl {
        virtual ~Impl() = default;
        virtual Device device() const = 0;
        virtual Span span() const = 0;
        virtual bool has_pages() const = 0;
        virtual void release_pages() = 0;
        virtual void restore_pages() = 0;
        virtual int export_fd() const = 0;
    };

  private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace tandem
