// A child that talks over its standard input and output, line by line: the parent asks, the child answers.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace tandem::comm {

class PipedChild {
  public:
    // Runs this program again ("/proc/self/exe") with these arguments, argv[0] first. Throws SystemError.
    explicit PipedChild(std::vector<std::string> arguments);
    // Closes both pipes, which a child takes as the end, and waits for it.
    ~PipedChild();
    PipedChild(const PipedChild&) = delete;
    PipedChild& operator=(const PipedChild&) = delete;

    std::string read_line();  // blocks; empty when the child has ended
    void write_line(const std::string& line);
    std::string ask(const std::string& line) {
        write_line(line);
        return read_line();
    }
    pid_t pid() const { return pid_; }
    bool running();
    void kill();  // SIGKILL, and waits

  private:
    pid_t pid_ = -1;
    bool ended_ = false;
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
};

}  // namespace tandem::comm
