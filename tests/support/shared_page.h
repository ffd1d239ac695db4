// One T in memory that a test shares with the processes it starts, which open it by its path, /proc/PID/fd/FD.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/error.h"

namespace tandem::test {

// T is made of atomics and plain values whose zero bytes are their start.
template <typename T>
class SharedPage {
  public:
    // A fresh one, all zero.
    SharedPage() : fd_(::memfd_create("test page", MFD_CLOEXEC)) {
        if (fd_ < 0 || ::ftruncate(fd_, sizeof(T)) != 0) throw SystemError("memfd of a shared page", errno);
        map();
    }
    // Another process's.
    explicit SharedPage(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
        if (fd_ < 0) throw SystemError("open of the shared page " + path, errno);
        map();
    }
    ~SharedPage() {
        ::munmap(page_, sizeof(T));
        ::close(fd_);
    }
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;

    T* operator->() const { return page_; }
    std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_); }

  private:
    void map() {
        void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (memory == MAP_FAILED) throw SystemError("mmap of a shared page", errno);
        page_ = static_cast<T*>(memory);
    }

    int fd_ = -1;
    T* page_ = nullptr;
};

}  // namespace tandem::test
