#include "common/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/error.h"

namespace tandem {
namespace {

using Descriptor = ChildOptions::Descriptor;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (const auto& text : texts)
        list.push_back(const_cast<char*>(text.c_str()));  // NOLINT: exec's old signature
    list.push_back(nullptr);
    return list;
}

struct Pipe {
    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe2", errno);
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
    FileDescriptor read, write;
};

// Whether it became readable, or its other end closed.
bool readable(int fd, Deadline deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
        pollfd waiting{fd, POLLIN, 0};
        const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long>(left, 60'000)));
        if (ready > 0) return true;
        if (deadline.passed()) return false;
    }
}

// --- in the child, between fork and exec: only calls that are safe after a fork of a process with threads

struct Plan {
    const char* program;
    char* const* argv;
    char* const* environment;
    std::vector<Descriptor> descriptors;
    std::optional<pid_t> group;
    bool dies_with_thread;
    pid_t parent;
    int report;  // to where an errno goes
};

[[noreturn]] void give_up(int report) {
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof(error));
    ::_exit(127);
}

// Behind all places first, since the place of one may be where another still is.
void place_descriptors(Plan& plan) {
    int last = STDERR_FILENO;
    for (const Descriptor& one : plan.descriptors) last = std::max(last, one.there);
    const int report = ::fcntl(plan.report, F_DUPFD_CLOEXEC, last + 1);
    if (report < 0) give_up(plan.report);
    plan.report = report;
    for (Descriptor& one : plan.descriptors) {
        one.here = ::fcntl(one.here, F_DUPFD_CLOEXEC, last + 1);
        if (one.here < 0) give_up(plan.report);
    }
    for (const Descriptor& one : plan.descriptors) {
        if (::dup2(one.here, one.there) < 0) give_up(plan.report);
    }
}

[[noreturn]] void run_child(Plan& plan) {
    if (plan.dies_with_thread) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (plan.dies_with_thread && ::getppid() != plan.parent) ::_exit(127);  // the parent died before prctl
    if (plan.group) ::setpgid(0, *plan.group);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    // A child in a process group of its own must not read from the terminal: it would be stopped.
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) ::dup2(null, STDIN_FILENO);
    place_descriptors(plan);
    ::execvpe(plan.program, plan.argv, plan.environment);
    give_up(plan.report);
}

}  // namespace

// --- from its start to its end

ChildProcess::ChildProcess(const ChildOptions& options) : patience_(options.patience) {
    require(!options.command.empty(), "a child without a command");
    name_ = options.program.empty() ? options.command[0] : options.program;
    const auto argv = pointers(options.command);
    const auto environment = options.environment ? pointers(*options.environment) : std::vector<char*>();
    Pipe report;
    Plan plan{name_.c_str(),       argv.data(),       options.environment ? environment.data() : environ,
              options.descriptors, options.group,     options.dies_with_thread,
              ::getpid(),          report.write.get()};
    std::optional<Pipe> in, out;
    if (options.piped) {
        in.emplace();
        out.emplace();
        plan.descriptors.push_back({in->read.get(), STDIN_FILENO});
        plan.descriptors.push_back({out->write.get(), STDOUT_FILENO});
    }
    pid_ = ::fork();
    if (pid_ == 0) run_child(plan);
    if (pid_ < 0) throw SystemError("fork", errno);
    report.write.reset();
    int exec_error = 0;
    ssize_t got = 0;
    do {
        got = ::read(report.read.get(), &exec_error, sizeof(exec_error));
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof(exec_error))) {
        ::waitpid(pid_, nullptr, 0);
        throw SystemError("exec of '" + name_ + "'", exec_error);
    }
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!pidfd_) {
        const int error = errno;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        throw SystemError("pidfd_open", error);
    }
    if (!options.piped) return;
    to_ = std::move(in->write);
    from_ = std::move(out->read);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      to_(std::move(other.to_)),
      from_(std::move(other.from_)),
      unread_(std::move(other.unread_)),
      name_(std::move(other.name_)),
      patience_(other.patience_) {}

ChildProcess::~ChildProcess() {
    if (pid_ < 0) return;
    to_.reset();
    from_.reset();
    if (patience_.count() > 0) wait(Deadline::after(patience_));
    ::kill(pid_, SIGKILL);  // still ours: a child is not reaped before this
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

std::optional<ChildEnd> ChildProcess::ended() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        if (errno == ECHILD) return ChildEnd{.exit_code = 1, .signal = 0, .known = false};
        return std::nullopt;
    }
    if (info.si_pid == 0) return std::nullopt;
    if (info.si_code == CLD_EXITED) return ChildEnd{.exit_code = info.si_status, .signal = 0};
    return ChildEnd{.exit_code = 0, .signal = info.si_status};
}

std::optional<ChildEnd> ChildProcess::wait(Deadline deadline) const {
    return readable(pidfd_.get(), deadline) ? ended() : std::nullopt;
}

void ChildProcess::signal(int number) const {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

void ChildProcess::kill() const {
    signal(SIGKILL);
    constexpr std::chrono::seconds kEnds{10};  // what is killed ends when the system gets to it
    wait(Deadline::after(kEnds));
}

// --- lines

std::string ChildProcess::read_line(Deadline deadline) {
    std::size_t end = 0;
    while ((end = unread_.find('\n')) == std::string::npos) {
        if (!readable(from_.get(), deadline))
            throw DeadlineExceeded(name_, "answer", "it wrote no line in time");
        char block[4096];
        const ssize_t got = ::read(from_.get(), block, sizeof(block));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return std::exchange(unread_, {});
        unread_.append(block, static_cast<std::size_t>(got));
    }
    std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return line;
}

void ChildProcess::write_line(const std::string& line) {
    const std::string text = line + "\n";
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t wrote = ::write(to_.get(), text.data() + done, text.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) throw SystemError("write to " + name_, errno);
        done += static_cast<std::size_t>(wrote);
    }
}

}  // namespace tandem
