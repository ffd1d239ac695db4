// Runs tandem-engine as a child process of a test: its output, its exit code, its URL once it serves.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem::engine {

class Program {
  public:
    // Starts <build>/bin/tandem-engine with these arguments. stdout and stderr are caught together.
    // full: so many bytes of the 4096 that its output may fill before somebody reads are there already.
    explicit Program(const std::vector<std::string>& arguments, std::size_t full = 0);
    ~Program();  // kills what still runs
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Reads until "listening on URL"; returns the URL, or nothing when the program ended first or 30 s
    // passed.
    std::string url();
    std::size_t unread() const;  // bytes of its output, with those that were there before
    void signal(int number) const;
    // Waits at most 30 s; returns the exit code, or 128 + the signal that ended it; -1: it lives on.
    enum class Output { read, unread };
    int wait(Output output = Output::read);
    const std::string& output() const { return output_; }  // read so far; whole after wait()
    pid_t pid() const { return pid_; }

  private:
    bool read_some();
    pid_t pid_ = -1;
    int fd_ = -1;
    std::string output_;
};

}  // namespace tandem::engine
