#include "tests/multiproc/engine/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

namespace tandem::engine {

Program::Program(const std::vector<std::string>& arguments, std::size_t full) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    if (full > 0) {
        const std::string block(full, '.');
        if (::fcntl(ends[1], F_SETPIPE_SZ, 4096) != 4096) std::abort();
        if (::write(ends[1], block.data(), full) != static_cast<ssize_t>(full)) std::abort();
    }
    const std::string binary = std::string(TANDEM_BIN_DIR) + "/tandem-engine";
    std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
        ::dup2(ends[1], 1);
        ::dup2(ends[1], 2);
        ::close(ends[0]);
        ::close(ends[1]);
        ::execv(binary.c_str(), argv.data());
        ::_exit(127);
    }
    ::close(ends[1]);
    fd_ = ends[0];
}

Program::~Program() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    if (fd_ >= 0) ::close(fd_);
}

// False at the end of the output, or after 30 s of silence.
bool Program::read_some() {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, 30'000) <= 0) return false;
    char block[4096];
    const auto n = ::read(fd_, block, sizeof(block));
    if (n <= 0) return false;
    output_.append(block, static_cast<std::size_t>(n));
    return true;
}

std::string Program::url() {
    const std::string marker = "listening on ";
    for (;;) {
        const auto at = output_.find(marker);
        const auto end = at == std::string::npos ? at : output_.find('\n', at);
        if (end != std::string::npos) return output_.substr(at + marker.size(), end - at - marker.size());
        if (!read_some()) return "";
    }
}

std::size_t Program::unread() const {
    int bytes = 0;
    return ::ioctl(fd_, FIONREAD, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

void Program::signal(int number) const {
    ::kill(pid_, number);
}

int Program::wait(Output output) {
    while (output == Output::read && read_some()) {
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > limit) return -1;
        ::usleep(10'000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tandem::engine
