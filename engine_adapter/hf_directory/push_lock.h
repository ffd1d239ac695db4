// One push at a time into a third-party server: such a server knows no pushers, and two that take turns with its routes
// would leave one's weights under the other's version. Pushers of one user on one host agree by a locked file in a folder
// that is this user's alone (XDG_RUNTIME_DIR, else beside what they stage); the kernel unlocks it when its holder dies.
// Those of several hosts or users are not held apart.
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
    // DeadlineExceeded naming the process that holds it; Error where no folder is this user's alone; SystemError.
    PushLock(const std::filesystem::path& root, const std::string& server, Deadline deadline);
    ~PushLock() { release(); }
    PushLock(PushLock&& other) noexcept;
    PushLock& operator=(PushLock&& other) noexcept;

    explicit operator bool() const { return static_cast<bool>(fd_); }
    void release() noexcept;  // and removes the file

  private:
    bool try_lock(const std::string& server);
    std::string holder() const;

    std::filesystem::path path_;
    FileDescriptor folder_, fd_;
};

}  // namespace tandem::engine
