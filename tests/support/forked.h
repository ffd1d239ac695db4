// A process of the test's own code, which does one thing when it is told to, and is gone with the test at the latest.
//
// Make it before what has busy threads: one that is in malloc at the moment of the fork leaves malloc locked in the child for
// ever. (glibc sees to its own malloc; the address sanitizer's has nobody who does.)
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "tests/support/eventually.h"

namespace tandem::test {

class Forked {
  public:
    // body: gets what the process is told, returns its exit code.
    explicit Forked(const std::function<int(const std::string& told)>& body) {
        int ends[2];
        if (::pipe(ends) != 0) throw SystemError("pipe", errno);
        const FileDescriptor read_end(ends[0]);
        to_.reset(ends[1]);
        pid_ = ::fork();
        if (pid_ < 0) throw SystemError("fork", errno);
        if (pid_ > 0) return;
        to_.reset();
        std::string told;
        char byte = 0;
        ssize_t got = 0;
        while ((got = ::read(read_end.get(), &byte, 1)) == 1 && byte != '\n') told += byte;
        if (got != 1) ::_exit(97);  // the test ended
        try {
            ::_exit(body(told));
        } catch (const std::exception& error) {
            std::fprintf(stderr, "in the forked process: %s\n", error.what());
            ::_exit(98);
        }
    }
    ~Forked() {
        if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    }
    Forked(const Forked&) = delete;
    Forked& operator=(const Forked&) = delete;

    // Not after its end.
    void signal(int number) const {
        if (pid_ > 0) ::kill(pid_, number);  // -1 would be every process
    }
    // From here on it acts. what: of one line.
    void tell(const std::string& what = "") {
        const std::string line = what + "\n";
        if (::write(to_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
            throw SystemError("write to a forked process", errno);
    }
    // Exit code, or 128 + the signal that ended it; -1: it lives on.
    int end() {
        int status = 0;
        if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    int act(const std::string& what = "") {
        tell(what);
        return end();
    }

  private:
    FileDescriptor to_;
    pid_t pid_ = -1;
};

}  // namespace tandem::test
