#include "tests/multiproc/network/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tandem::test {
namespace {

// Forks a child that dies with this thread.
template <typename Body>
pid_t fork_child(const Body& body) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (pid > 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(127);
}

int exit_code_of(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process in a network namespace of its own. It tells over a pipe that it is there.
pid_t hold_namespace() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    const pid_t pid = fork_child([&] {
        const char answer = ::unshare(CLONE_NEWNET) == 0 ? 1 : 0;
        if (::write(ends[1], &answer, 1) != 1 || answer == 0) return;
        for (;;) ::pause();
    });
    ::close(ends[1]);
    char answer = 0;
    const bool told = ::read(ends[0], &answer, 1) == 1;
    ::close(ends[0]);
    if (told && answer == 1) return pid;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return -1;
}

void enter_namespace(pid_t holder) {
    const int fd = ::open(("/proc/" + std::to_string(holder) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) ::_exit(126);
    ::close(fd);
}

void execute(const std::vector<std::string>& command) {
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
}

}  // namespace

std::string why_no_hosts() {
    const pid_t holder = hold_namespace();
    if (holder < 0) {
        return "this process may not make network namespaces (CAP_SYS_ADMIN; in a container: --privileged); "
               "leave these tests out with ctest -LE netns";
    }
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    return "";
}

Hosts::Hosts() {
    for (pid_t& holder : holders_) {
        holder = hold_namespace();
        if (holder < 0) throw std::runtime_error(why_no_hosts());
    }
    run(0, {"ip", "link", "add", interface(0), "type", "veth", "peer", "name", interface(1), "netns",
            std::to_string(holders_[1])});
    for (const int host : {0, 1}) {
        run(host, {"ip", "address", "add", address(host) + "/24", "dev", interface(host)});
        run(host, {"ip", "link", "set", interface(host), "up"});
        run(host, {"ip", "link", "set", "lo", "up"});
    }
}

Hosts::~Hosts() {
    for (const pid_t holder : holders_) {
        if (holder < 0) continue;
        ::kill(holder, SIGKILL);
        ::waitpid(holder, nullptr, 0);
    }
}

void Hosts::cut() const {
    run(1, {"ip", "link", "set", interface(1), "down"});
}

void Hosts::mend() const {
    run(1, {"ip", "link", "set", interface(1), "up"});
}

pid_t Hosts::start(int host, const std::vector<std::string>& command,
                   const std::vector<std::string>& environment) const {
    return fork_child([&] {
        enter_namespace(holders_[host]);
        for (const auto& entry : environment) {
            const std::size_t cut = entry.find('=');
            ::setenv(entry.substr(0, cut).c_str(), entry.substr(cut + 1).c_str(), 1);
        }
        execute(command);
    });
}

void Hosts::run(int host, const std::vector<std::string>& command) const {
    const int code = exit_code_of(start(host, command, {}));
    if (code == 0) return;
    std::string text;
    for (const auto& word : command) text += word + " ";
    throw std::runtime_error(text + "ended with code " + std::to_string(code) +
                             (code == 127 ? "; is iproute2 installed?" : ""));
}

}  // namespace tandem::test
