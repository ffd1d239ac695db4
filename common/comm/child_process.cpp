#include "common/comm/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/error.h"

namespace tandem::comm {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (const auto& text : texts)
        list.push_back(const_cast<char*>(text.c_str()));  // NOLINT: exec's old signature
    list.push_back(nullptr);
    return list;
}

// Between fork and exec: only calls that are safe after a fork of a process with threads.
[[noreturn]] void run_child(const ChildOptions& options, pid_t parent, char* const* argv, char* const* envp,
                            int report_fd) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
    ::setpgid(0, options.group);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    // A rank in a process group of its own must not read from the terminal: it would be stopped.
    const int null = ::open("/dev/null", O_RDONLY);
    if (null >= 0) ::dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO) ::close(null);
    if (options.inherited_fd >= 0) ::fcntl(options.inherited_fd, F_SETFD, 0);
    ::execvpe(argv[0], argv, envp);
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(report_fd, &error, sizeof(error));
    ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
    require(!options.command.empty(), "a rank without a command");
    const auto argv = pointers(options.command);
    const auto envp = pointers(options.environment);
    int report[2];
    if (::pipe2(report, O_CLOEXEC) != 0) throw SystemError("pipe2", errno);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) run_child(options, parent, argv.data(), envp.data(), report[1]);
    const int fork_error = errno;
    ::close(report[1]);
    int exec_error = 0;
    ssize_t got = 0;
    do {
        got = pid_ > 0 ? ::read(report[0], &exec_error, sizeof(exec_error)) : 0;
    } while (got < 0 && errno == EINTR);
    ::close(report[0]);
    if (pid_ < 0) throw SystemError("fork", fork_error);
    if (got == static_cast<ssize_t>(sizeof(exec_error))) {
        ::waitpid(pid_, nullptr, 0);
        throw SystemError("exec of '" + options.command[0] + "'", exec_error);
    }
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (pidfd_ < 0) {
        const int error = errno;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        throw SystemError("pidfd_open", error);
    }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}

ChildProcess::~ChildProcess() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);  // still ours: a child is not reaped before this
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::close(pidfd_);
}

std::optional<ChildEnd> ChildProcess::ended() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        // A parent that ignores SIGCHLD loses how its children end.
        if (errno == ECHILD) return ChildEnd{.exit_code = 1, .signal = 0};
        return std::nullopt;
    }
    if (info.si_pid == 0) return std::nullopt;
    if (info.si_code == CLD_EXITED) return ChildEnd{.exit_code = info.si_status, .signal = 0};
    return ChildEnd{.exit_code = 0, .signal = info.si_status};
}

}  // namespace tandem::comm
