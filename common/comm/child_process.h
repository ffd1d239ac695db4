// One child process: started with fork and exec, watched through a pidfd, and reaped last of all, so that its
// id and its process group stay its own until everything is over.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::comm {

struct ChildOptions {
    std::vector<std::string> command;
    std::vector<std::string> environment;  // complete: "KEY=value"
    int inherited_fd = -1;                 // stays open across exec
    pid_t group = 0;                       // process group to join; 0: a new one
};

struct ChildEnd {
    int exit_code = 0;
    int signal = 0;
};

class ChildProcess {
  public:
    // Forks and waits until the child runs the command; throws SystemError naming it when it cannot. The
    // child is killed when the calling thread ends, however it ends.
    explicit ChildProcess(const ChildOptions& options);
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;
    ChildProcess(const ChildProcess&) = delete;
    ~ChildProcess();  // kills what still runs, reaps

    pid_t pid() const { return pid_; }
    int pidfd() const { return pidfd_; }  // readable once the child has ended
    std::optional<ChildEnd> ended() const;

  private:
    pid_t pid_ = -1;
    int pidfd_ = -1;
};

}  // namespace tandem::comm
