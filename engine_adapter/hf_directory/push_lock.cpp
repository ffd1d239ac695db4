#include "engine_adapter/hf_directory/push_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "common/error.h"

namespace tandem::engine {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

std::string file_name(std::string server) {
    for (const char* loopback : {"://localhost:", "://127.0.0.1:", "://[::1]:"}) {
        const std::size_t at = server.find(loopback);
        if (at != std::string::npos) server.replace(at, std::string_view(loopback).size(), "://loopback:");
    }
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-'; };
    std::replace_if(
        server.begin(), server.end(), [&](char c) { return !plain(static_cast<unsigned char>(c)); }, '_');
    return "tandem-push." + server + ".lock";
}

std::string holder_of(const std::filesystem::path& file) {
    std::string process;
    std::getline(std::ifstream(file), process);
    return process.empty() ? "" : fmt::format(" (process {})", process);
}

}  // namespace

PushLock::PushLock(const std::filesystem::path& root, const std::string& server, Deadline deadline)
    : path_(root / file_name(server)) {
    while (!try_lock(server)) {
        if (deadline.passed()) {
            throw DeadlineExceeded(
                server, "lock",
                fmt::format("another push into it{} is at work: wait for its end, or longer (--deadline)",
                            holder_of(path_)),
                true);
        }
        std::this_thread::sleep_for(kBetweenTries);
    }
    const std::string process = std::to_string(::getpid()) + "\n";
    // For messages alone.
    if (::ftruncate(fd_.get(), 0) != 0 || ::pwrite(fd_.get(), process.data(), process.size(), 0) < 0) return;
}

// Who held the file before may have removed it after it was opened here: then there is another by that name, or none.
bool PushLock::try_lock(const std::string& server) {
    FileDescriptor fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) throw SystemError(fmt::format("lock of {}: open {}", server, path_.string()), errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR) return false;
        throw SystemError(fmt::format("lock of {}: flock {}", server, path_.string()), errno);
    }
    struct stat mine {};
    struct stat named {};
    if (::fstat(fd.get(), &mine) != 0 || ::stat(path_.c_str(), &named) != 0) return false;
    if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev) return false;
    fd_ = std::move(fd);
    return true;
}

PushLock::PushLock(PushLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::move(other.fd_)) {}

PushLock& PushLock::operator=(PushLock&& other) noexcept {
    if (this == &other) return *this;
    release();
    path_ = std::move(other.path_);
    fd_ = std::move(other.fd_);
    return *this;
}

void PushLock::release() noexcept {
    if (!fd_) return;
    ::unlink(path_.c_str());
    fd_.reset();
}

}  // namespace tandem::engine
