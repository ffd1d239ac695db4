#include "common/comm/piped_child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"

extern char** environ;

namespace tandem::comm {

PipedChild::PipedChild(std::vector<std::string> arguments) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0) throw SystemError("pipe2", errno);
    if (::pipe2(out, O_CLOEXEC) != 0) {
        const int error = errno;
        ::close(in[0]);
        ::close(in[1]);
        throw SystemError("pipe2", error);
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    if (error == 0) return;
    std::fclose(to_);
    std::fclose(from_);
    throw SystemError("posix_spawn of this program", error);
}

PipedChild::~PipedChild() {
    std::fclose(to_);
    std::fclose(from_);
    while (!ended_ && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

std::string PipedChild::read_line() {
    std::string line;
    for (int c = 0; (c = std::fgetc(from_)) != EOF && c != '\n';) line.push_back(static_cast<char>(c));
    return line;
}

void PipedChild::write_line(const std::string& line) {
    std::fputs((line + "\n").c_str(), to_);
    std::fflush(to_);
}

bool PipedChild::running() {
    if (!ended_) ended_ = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    return !ended_;
}

void PipedChild::kill() {
    if (ended_) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    ended_ = true;
}

}  // namespace tandem::comm
