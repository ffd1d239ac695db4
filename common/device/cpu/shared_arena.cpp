#include "common/device/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/align.h"
#include "common/device/huge_pages.h"
#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// At a multiple of huge pages, since only there can the file's lie in this process as such.
void* map_aligned(int fd, std::size_t bytes, int protection) {
    if (bytes < kHugePage) return ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    const std::size_t room = bytes + kHugePage;
    void* const whole = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) return whole;
    auto* const begin = static_cast<std::byte*>(whole);
    auto* const at =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage));
    void* const data = ::mmap(at, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (data == MAP_FAILED) {
        const int error = errno;
        ::munmap(whole, room);
        errno = error;
        return data;
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::byte* const end = at + round_up(bytes, page);
    if (at > begin) ::munmap(begin, static_cast<std::size_t>(at - begin));
    ::munmap(end, static_cast<std::size_t>(begin + room - end));
    return data;
}

std::byte* map(int fd, std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
    void* data = map_aligned(fd, bytes, protection);
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
    hold_in_huge_pages(span());
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
