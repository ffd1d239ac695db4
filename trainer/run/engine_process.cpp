#include "trainer/run/engine_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/text_file.h"

namespace tandem::trainer {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};
constexpr std::chrono::seconds kEnds{3};  // after SIGTERM

// In the engine's process.
constexpr int kKeyDescriptor = 3;

std::string random_key() {
    std::random_device random;
    std::string key;
    for (int i = 0; i < 8; ++i) key += fmt::format("{:08x}", random());
    return key;
}

// A file in memory that holds the key.
FileDescriptor file_of(const std::string& key) {
    FileDescriptor file(::memfd_create("tandem api key", MFD_CLOEXEC));
    if (!file) throw SystemError("memfd_create", errno);
    if (::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
        throw SystemError("write of a key", errno);
    return file;
}

// This process's, without what is the ranks' alone.
std::vector<std::string> engine_environment() {
    constexpr std::string_view kSecret = "TANDEM_JOB_SECRET=";
    std::vector<std::string> entries;
    for (char** at = environ; *at != nullptr; ++at) {
        if (!std::string_view(*at).starts_with(kSecret)) entries.emplace_back(*at);
    }
    return entries;
}

// In a group of its own: Ctrl-C reaches this process, which then ends the engine in order.
ChildProcess start(const std::vector<std::string>& command, const std::string& log_file,
                   const std::string& key) {
    const FileDescriptor key_file = file_of(key);
    const FileDescriptor log(
        ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!log) throw SystemError("open " + log_file, errno);
    return ChildProcess({.command = command,
                         .environment = engine_environment(),
                         .descriptors = {{log.get(), STDOUT_FILENO},
                                         {log.get(), STDERR_FILENO},
                                         {key_file.get(), kKeyDescriptor}},
                         .group = 0,
                         .dies_with_thread = false,
                         .patience = kEnds});
}

}  // namespace

EngineProcess::EngineProcess(std::vector<std::string> command, const std::string& log_file, Deadline deadline)
    : log_file_(log_file), api_key_(random_key()) {
    const std::string ready_file = log_file + ".ready";
    command.insert(command.end(), {"--ready-file", ready_file, "--api-key-fd", std::to_string(kKeyDescriptor),
                                   "--parent-pid", std::to_string(::getpid())});
    child_.emplace(start(command, log_file, api_key_));
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
    if (!ended_.empty()) return ended_;
    const auto end = child_->ended();
    if (!end) return {};
    const std::string name = url_.empty() ? "engine" : "engine " + url_;
    if (!end->known) return ended_ = name + " ended, how is not known: SIGCHLD is ignored";
    ended_ = end->signal != 0
                 ? fmt::format("{} was killed by signal {} ({})", name, end->signal, strsignal(end->signal))
                 : fmt::format("{} exited with code {}", name, end->exit_code);
    return ended_;
}

void EngineProcess::stop() {
    child_->signal(SIGTERM);
    child_.reset();
}

std::string EngineProcess::log_tail() const {
    constexpr std::size_t kLargestLog = std::size_t{1} << 34;
    const std::string log = read_text_file_if_there(log_file_, kLargestLog);
    std::size_t start = log.size();
    for (int lines = 0; start > 0 && lines <= 10; --start) lines += log[start - 1] == '\n' ? 1 : 0;
    return fmt::format("{} ends with:\n{}", log_file_, log.substr(start));
}

}  // namespace tandem::trainer
