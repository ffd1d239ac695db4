#include "engine_adapter/hf_directory/push_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/owned_folder.h"

namespace tandem::engine {
namespace {

namespace fs = std::filesystem;

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

struct Place {
    fs::path path;
    FileDescriptor folder;
};

// The first of those that a user may have which nobody else has taken. Every push of a user finds the same one.
Place folder_of_locks(const fs::path& root) {
    const std::string user = std::to_string(::geteuid());
    std::vector<fs::path> places;
    if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
        places.push_back(fs::path(runtime) / "tandem");
    places.push_back(fs::path("/run/user") / user / "tandem");
    places.push_back(root / ("tandem-" + user));
    if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
        places.push_back(fs::path(home) / ".tandem-locks");
    for (const fs::path& place : places) {
        if (FileDescriptor folder = private_folder(place)) return {place, std::move(folder)};
    }
    throw Error(
        fmt::format("no folder for the locks of pushes: {} is not this user's alone. Remove it, or set "
                    "XDG_RUNTIME_DIR to a folder that is",
                    places[places.size() > 2 ? 2 : 1].string()));
}

}  // namespace

PushLock::PushLock(const std::filesystem::path& root, const std::string& server, Deadline deadline) {
    Place place = folder_of_locks(root);
    path_ = place.path / file_name(server);
    folder_ = std::move(place.folder);
    while (!try_lock(server)) {
        if (deadline.passed()) {
            throw DeadlineExceeded(
                server, "lock",
                fmt::format("another push into it{} is at work: wait for its end, or longer (--deadline)",
                            holder()),
                true);
        }
        std::this_thread::sleep_for(kBetweenTries);
    }
    const std::string process = std::to_string(::getpid()) + "\n";
    // For messages alone.
    if (::ftruncate(fd_.get(), 0) != 0 || ::pwrite(fd_.get(), process.data(), process.size(), 0) < 0) return;
}

// For messages alone.
std::string PushLock::holder() const {
    const FileDescriptor file(
        ::openat(folder_.get(), path_.filename().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    char text[32];
    const ssize_t bytes = file ? ::read(file.get(), text, sizeof(text)) : 0;
    const std::string process(text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    const std::size_t digits = process.find_first_not_of("0123456789");
    return digits == 0 || process.empty() ? "" : fmt::format(" (process {})", process.substr(0, digits));
}

// Who held the file before may have removed it after it was opened here: then there is another by that name, or none.
bool PushLock::try_lock(const std::string& server) {
    const std::string name = path_.filename();
    FileDescriptor fd(::openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) throw SystemError(fmt::format("lock of {}: open {}", server, path_.string()), errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR) return false;
        throw SystemError(fmt::format("lock of {}: flock {}", server, path_.string()), errno);
    }
    struct stat mine {};
    struct stat named {};
    if (::fstat(fd.get(), &mine) != 0 ||
        ::fstatat(folder_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev) return false;
    fd_ = std::move(fd);
    return true;
}

PushLock::PushLock(PushLock&& other) noexcept
    : path_(std::move(other.path_)), folder_(std::move(other.folder_)), fd_(std::move(other.fd_)) {}

PushLock& PushLock::operator=(PushLock&& other) noexcept {
    if (this == &other) return *this;
    release();
    path_ = std::move(other.path_);
    folder_ = std::move(other.folder_);
    fd_ = std::move(other.fd_);
    return *this;
}

void PushLock::release() noexcept {
    if (!fd_) return;
    ::unlinkat(folder_.get(), path_.filename().c_str(), 0);
    fd_.reset();
}

}  // namespace tandem::engine
