// Runs tandem-engine as a child process of a test: its output, its exit code, its URL once it serves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/process/child_process.h"

namespace tandem::engine {

class Program {
  public:
    // Starts <build>/bin/tandem-engine with these arguments. stdout and stderr are caught together.
    // full: so many bytes of the 4096 that its output may fill before somebody reads are there already.
    explicit Program(const std::vector<std::string>& arguments, std::size_t full = 0);

    // Reads until "listening on URL"; returns the URL, or nothing when the program ended first or 30 s
    // passed.
    std::string url();
    std::size_t unread() const;  // bytes of its output, with those that were there before
    void signal(int number) const { child_->signal(number); }
    // Waits at most 30 s; returns the exit code, or 128 + the signal that ended it; -1: it lives on.
    enum class Output { read, unread };
    int wait(Output output = Output::read);
    const std::string& output() const { return output_; }  // read so far; whole after wait()
    pid_t pid() const { return child_->pid(); }

  private:
    bool read_some();
    FileDescriptor said_;
    std::optional<ChildProcess> child_;  // killed with this object
    std::string output_;
};

}  // namespace tandem::engine
