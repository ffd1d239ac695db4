#include "tests/multiproc/engine/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"

namespace tandem::engine {

Program::Program(const std::vector<std::string>& arguments, std::size_t full) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe2", errno);
    said_.reset(ends[0]);
    const FileDescriptor says(ends[1]);
    if (full > 0) {
        const std::string block(full, '.');
        if (::fcntl(says.get(), F_SETPIPE_SZ, 4096) != 4096) throw SystemError("F_SETPIPE_SZ", errno);
        if (::write(says.get(), block.data(), full) != static_cast<ssize_t>(full))
            throw SystemError("write", errno);
    }
    ChildOptions options{.command = {TANDEM_BIN_DIR "/tandem-engine"},
                         .descriptors = {{says.get(), STDOUT_FILENO}, {says.get(), STDERR_FILENO}},
                         .dies_with_thread = false};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    child_.emplace(options);
}

// False at the end of the output, or after 30 s of silence.
bool Program::read_some() {
    pollfd ready{said_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 30'000) <= 0) return false;
    char block[4096];
    const auto n = ::read(said_.get(), block, sizeof(block));
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
    return ::ioctl(said_.get(), FIONREAD, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

int Program::wait(Output output) {
    while (output == Output::read && read_some()) {
    }
    const auto end = child_->wait(Deadline::after_ms(30'000));
    if (!end) return -1;
    return end->signal == 0 ? end->exit_code : 128 + end->signal;
}

}  // namespace tandem::engine
