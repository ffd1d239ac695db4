// Virtual arenas of the emulated GPU: a memfd behind the alias, another one after each restore.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/device/memory_stats.h"
#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/emulated_gpu/export.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/stream.h"

namespace tandem::emulated {
namespace {

class Arena final : public VirtualArena::Impl {
  public:
    Arena(Device device, std::size_t bytes, std::string_view tag, bool pages)
        : device_(device), bytes_(bytes), tag_(detail::memory_tag(tag)), tag_name_(tag) {
        restore_pages();  // its address comes with the first pages
        if (!pages) release_pages();
    }
    // Of another process; its capacity and its tag count it.
    Arena(Device device, std::size_t bytes, int fd) : device_(device), bytes_(bytes) {
        struct stat info {};
        if (::fstat(fd, &info) != 0 || static_cast<std::size_t>(info.st_size) < bytes)
            throw IpcRefused(
                fmt::format("descriptor {} is no memory of {} bytes of an emulated GPU", fd, bytes));
        fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd_ < 0) throw SystemError("fcntl(F_DUPFD_CLOEXEC)", errno);
        data_ = map(fd_, bytes);
    }
    ~Arena() override {
        if (fd_ >= 0) drop();
        if (data_ != nullptr) unmap(data_, bytes_);
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {data_, bytes_}; }
    bool has_pages() const override { return fd_ >= 0; }

    void release_pages() override {
        require(tag_ >= 0, "the pages of an arena on {} are another process's to give back",
                to_string(device_));
        if (fd_ < 0) return;
        drop();
        change(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    }

    void restore_pages() override {
        if (fd_ >= 0) return;
        try {
            take(device_, bytes_);
        } catch (const OutOfMemory& error) {
            throw error.with_tag(tag_name_);
        }
        fd_ = ::memfd_create("tandem:virtual", MFD_CLOEXEC);
        if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
            throw SystemError("memfd_create of a virtual arena", errno);
        if (data_ == nullptr) {
            data_ = map(fd_, bytes_);
        } else {
            change(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_);
        }
        detail::count_allocation(tag_, bytes_);
    }

    int export_fd() const override {
        if (fd_ < 0) throw IpcRefused("an arena without pages cannot be shared: restore_pages() first");
        const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) throw SystemError("fcntl(F_DUPFD_CLOEXEC)", errno);
        return copy;
    }

  private:
    void drop() noexcept {
        drain_streams(device_);
        ::close(fd_);
        fd_ = -1;
        if (tag_ < 0) return;
        emulated::give_back(device_, bytes_);
        detail::count_release(tag_, bytes_);
    }
    void change(int protection, int flags, int fd) {
        if (::mmap(host_alias(data_), bytes_, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
            throw SystemError("mmap of a virtual arena", errno);
    }

    Device device_;
    std::size_t bytes_;
    int tag_ = -1;  // -1: another process's
    std::string tag_name_;
    int fd_ = -1;  // -1: without pages
    std::byte* data_ = nullptr;
};

}  // namespace

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device device, std::size_t bytes, std::string_view tag,
                                                       bool pages) {
    return std::make_shared<Arena>(device, bytes, tag, pages);
}

std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device device, int fd, std::size_t bytes) {
    return std::make_shared<Arena>(device, bytes, fd);
}

}  // namespace tandem::emulated
