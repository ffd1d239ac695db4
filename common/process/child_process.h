// One child process that runs a program: started with fork and exec, watched through a pidfd, and reaped last of all, so
// that its id and its process group stay its own until everything is over. A child may talk over its standard input and
// output, line by line: the parent asks, the child answers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/file_descriptor.h"

namespace tandem {

struct ChildOptions {
    std::vector<std::string> command;                          // command[0] is looked for in PATH
    std::string program = {};                                  // that runs, by its path; empty: command[0]
    std::optional<std::vector<std::string>> environment = {};  // complete: "KEY=value"; none: this process's
    // What is open in the child beside standard output and error: this process's `here` is its `there`. Its standard
    // input is /dev/null unless it is one of them.
    struct Descriptor {
        int here = -1;
        int there = -1;
    };
    std::vector<Descriptor> descriptors = {};
    bool piped = false;               // its standard input and output are pipes to this object
    std::optional<pid_t> group = {};  // process group to join, 0: a new one; none: this process's
    bool dies_with_thread = true;     // it is killed when the thread that started it ends, however that ends
    std::chrono::milliseconds patience{0};  // of the destructor: for the child to end by itself
};

struct ChildEnd {
    int exit_code = 0;
    int signal = 0;
    bool known = true;  // false: this process ignores SIGCHLD, and the system forgot how the child ended
};

class ChildProcess {
  public:
    // Forks and waits until the child runs the program; throws SystemError naming it when it cannot.
    explicit ChildProcess(const ChildOptions& options);
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;
    ChildProcess(const ChildProcess&) = delete;
    // Closes the pipes, which a child takes as the end; kills what still runs after options.patience; reaps.
    ~ChildProcess();

    pid_t pid() const { return pid_; }
    int pidfd() const { return pidfd_.get(); }  // readable once the child has ended
    std::optional<ChildEnd> ended() const;      // none: it runs
    // Waits for its end; none: the deadline has passed.
    std::optional<ChildEnd> wait(Deadline deadline) const;
    void signal(int number) const;  // nothing once it has ended
    void kill() const;              // SIGKILL, and waits

    // Of a piped child. What it has written up to the end of a line; all that is left when it has closed its output, then
    // nothing. Throws DeadlineExceeded.
    std::string read_line(Deadline deadline);
    void write_line(const std::string& line);  // blocks while the pipe is full
    std::string ask(const std::string& line, Deadline deadline) {
        write_line(line);
        return read_line(deadline);
    }

  private:
    pid_t pid_ = -1;
    FileDescriptor pidfd_;
    FileDescriptor to_, from_;  // of a piped one
    std::string unread_;
    std::string name_;  // for messages
    std::chrono::milliseconds patience_;
};

}  // namespace tandem
