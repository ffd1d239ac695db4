// One push at a time into a server of others: such a server knows no pushers, and two that take turns with its routes
// would leave one's weights under the other's version. Pushers of one host agree by a locked file beside what they
// stage; the kernel unlocks it when its holder dies. Pushers of several hosts are not held apart.
#pragma once

#include <filesystem>
#include <string>

#include "common/deadline.h"
#include "common/file_descriptor.h"

namespace tandem::engine {

class PushLock {
  public:
    PushLock() = default;  // holds nothing
    // Waits while another push holds it. server: "vllm://HOST:PORT"; names of this machine's loopback are one. Throws
    // DeadlineExceeded naming the process that holds it, SystemError.
    PushLock(const std::filesystem::path& root, const std::string& server, Deadline deadline);
    ~PushLock() { release(); }
    PushLock(PushLock&& other) noexcept;
    PushLock& operator=(PushLock&& other) noexcept;

    explicit operator bool() const { return static_cast<bool>(fd_); }
    void release() noexcept;  // and removes the file

  private:
    bool try_lock(const std::string& server);

    std::filesystem::path path_;
    FileDescriptor fd_;
};

}  // namespace tandem::engine
