#include "common/device/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::byte* map(int fd, std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
    void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) {
        const int error = errno;
        ::close(fd);
        throw SystemError(fmt::format("mmap of {} shared bytes", bytes), error);
    }
    ::madvise(data, bytes, MADV_DONTDUMP);  // a core file would hold every byte of it
    return static_cast<std::byte*>(data);
}

}  // namespace

SharedArena SharedArena::create(const std::string& name, std::size_t bytes, std::string_view tag) {
    require(bytes > 0, "arena '{}' of zero bytes", name);
    const int fd = ::memfd_create(("tandem:" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) throw SystemError("memfd_create", errno);
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
        const int error = errno;
        ::close(fd);
        throw SystemError(fmt::format("making arena '{}' of {} bytes", name, bytes), error);
    }
    SharedArena arena;
    arena.data_ = map(fd, bytes);
    arena.fd_ = fd;
    arena.bytes_ = bytes;
    if (tag.empty()) return arena;
    arena.tag_ = detail::memory_tag(tag);
    detail::count_allocation(arena.tag_, bytes);
    return arena;
}

SharedArena SharedArena::open(int fd, std::size_t bytes) {
    return open(fd, bytes, PROT_READ | PROT_WRITE);
}

SharedArena SharedArena::open_read_only(int fd, std::size_t bytes) {
    return open(fd, bytes, PROT_READ);
}

SharedArena SharedArena::open(int fd, std::size_t bytes, int protection) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) {
        const int error = errno;
        ::close(fd);
        throw SystemError("fstat of a shared arena", error);
    }
    if (bytes == 0 || static_cast<std::size_t>(info.st_size) < bytes) {
        ::close(fd);
        throw BadInput(fmt::format("shared arena has {} bytes, {} announced", info.st_size, bytes));
    }
    // A file that shrinks under its mapping is a SIGBUS at the next read.
    constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
    if (const int seals = ::fcntl(fd, F_GET_SEALS); seals < 0 || (seals & kNeeded) != kNeeded) {
        ::close(fd);
        throw BadInput("shared arena is not sealed: whoever has it could cut it short");
    }
    SharedArena arena;
    arena.data_ = map(fd, bytes, protection);
    arena.fd_ = fd;
    arena.bytes_ = bytes;
    return arena;
}

SharedArena::SharedArena(SharedArena&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      tag_(std::exchange(other.tag_, -1)) {}

SharedArena& SharedArena::operator=(SharedArena&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
        tag_ = std::exchange(other.tag_, -1);
    }
    return *this;
}

SharedArena::~SharedArena() {
    close();
}

void SharedArena::touch() {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t at = 0; at < bytes_; at += page) {
        auto* byte = reinterpret_cast<volatile unsigned char*>(data_ + at);
        *byte = *byte;
    }
}

void SharedArena::close() noexcept {
    if (data_ == nullptr) return;
    ::munmap(data_, bytes_);
    ::close(fd_);
    if (tag_ >= 0) detail::count_release(tag_, bytes_);
    data_ = nullptr;
    fd_ = -1;
    tag_ = -1;
}

}  // namespace tandem
