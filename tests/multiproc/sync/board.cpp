#include "tests/multiproc/sync/board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"

namespace tandem::sync {

BoardMemory::BoardMemory() : fd_(::memfd_create("test board", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, sizeof(Board)) != 0) throw SystemError("memfd of the board", errno);
    map();
}

BoardMemory::BoardMemory(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) throw SystemError("open of the board " + path, errno);
    map();
}

BoardMemory::~BoardMemory() {
    ::munmap(board_, sizeof(Board));
    ::close(fd_);
}

// A file's first bytes are zero, which is what every field starts as.
void BoardMemory::map() {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) throw SystemError("mmap of the board", errno);
    board_ = static_cast<Board*>(memory);
}

std::string BoardMemory::path() const {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_);
}

}  // namespace tandem::sync
