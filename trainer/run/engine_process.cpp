#include "trainer/run/engine_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <thread>

#include "common/error.h"
#include "common/text_file.h"

extern char** environ;

namespace tandem::trainer {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};

// In the engine's process.
constexpr int kKeyDescriptor = 3;

std::string random_key() {
    std::random_device random;
    std::string key;
    for (int i = 0; i < 8; ++i) key += fmt::format("{:08x}", random());
    return key;
}

// A file in memory that holds the key; the caller closes it.
int file_of(const std::string& key) {
    const int file = ::memfd_create("tandem api key", MFD_CLOEXEC);
    if (file < 0) throw SystemError("memfd_create", errno);
    if (::write(file, key.data(), key.size()) == static_cast<ssize_t>(key.size())) return file;
    const int error = errno;
    ::close(file);
    throw SystemError("write of a key", error);
}

// This process's, without what is the ranks' alone.
std::vector<char*> engine_environment() {
    constexpr std::string_view kSecret = "TANDEM_JOB_SECRET=";
    std::vector<char*> entries;
    for (char** at = environ; *at != nullptr; ++at) {
        if (std::string_view(*at).substr(0, kSecret.size()) != kSecret) entries.push_back(*at);
    }
    entries.push_back(nullptr);
    return entries;
}

pid_t spawn(const std::vector<std::string>& command, const std::string& log_file, const std::string& key) {
    const int key_file = file_of(key);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_file.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, key_file, kKeyDescriptor);
    // A group of its own: Ctrl-C reaches this process, which then ends the engine in order.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_t pid = -1;
    const std::vector<char*> environment = engine_environment();
    const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    ::close(key_file);
    if (error != 0) throw SystemError("start " + command[0], error);
    return pid;
}

}  // namespace

EngineProcess::EngineProcess(std::vector<std::string> command, const std::string& log_file, Deadline deadline)
    : log_file_(log_file), api_key_(random_key()) {
    const std::string ready_file = log_file + ".ready";
    command.insert(command.end(), {"--ready-file", ready_file, "--api-key-fd", std::to_string(kKeyDescriptor),
                                   "--parent-pid", std::to_string(::getpid())});
    pid_ = spawn(command, log_file, api_key_);
    try {
        wait_until_ready(ready_file, deadline);
    } catch (...) {
        stop();
        throw;
    }
}

EngineProcess::~EngineProcess() {
    stop();
}

void EngineProcess::wait_until_ready(const std::string& ready_file, Deadline deadline) {
    while (url_.empty()) {
        if (const std::string reason = ended(); !reason.empty()) throw Error(reason + "\n" + log_tail());
        if (deadline.passed()) throw DeadlineExceeded("engine", "start", "not ready in time\n" + log_tail());
        std::this_thread::sleep_for(kPollInterval);
        url_ = read_text_file_if_there(ready_file);  // it appears whole
    }
    url_.erase(url_.find_last_not_of(" \n") + 1);
    std::remove(ready_file.c_str());
}

std::string EngineProcess::ended() {
    if (pid_ < 0 || !ended_.empty()) return ended_;
    int status = 0;
    const pid_t found = waitpid(pid_, &status, WNOHANG);
    if (found == 0 || (found < 0 && errno != ECHILD)) return {};
    pid_ = -1;
    const std::string name = url_.empty() ? "engine" : "engine " + url_;
    if (found < 0) return ended_ = name + " ended, how is not known: SIGCHLD is ignored";
    ended_ = WIFSIGNALED(status) ? fmt::format("{} was killed by signal {} ({})", name, WTERMSIG(status),
                                               strsignal(WTERMSIG(status)))
                                 : fmt::format("{} exited with code {}", name, WEXITSTATUS(status));
    return ended_;
}

void EngineProcess::stop() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    const Deadline deadline = Deadline::after(std::chrono::seconds(3));
    while (ended().empty()) {
        if (deadline.passed()) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            pid_ = -1;
            return;
        }
        std::this_thread::sleep_for(kPollInterval);
    }
}

std::string EngineProcess::log_tail() const {
    constexpr std::size_t kLargestLog = std::size_t{1} << 34;
    const std::string log = read_text_file_if_there(log_file_, kLargestLog);
    std::size_t start = log.size();
    for (int lines = 0; start > 0 && lines <= 10; --start) lines += log[start - 1] == '\n' ? 1 : 0;
    return fmt::format("{} ends with:\n{}", log_file_, log.substr(start));
}

}  // namespace tandem::trainer
