#include "common/device/announced_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem {
namespace {

// Takes "1234" off the front.
bool take_number(std::string_view& text) {
    const auto end = std::find_if(text.begin(), text.end(), [](char c) { return c < '0' || c > '9'; });
    const auto digits = static_cast<std::size_t>(end - text.begin());
    text.remove_prefix(digits);
    return digits >= 1 && digits <= 10;
}

bool take(std::string_view& text, std::string_view expected) {
    if (text.substr(0, expected.size()) != expected) return false;
    text.remove_prefix(expected.size());
    return true;
}

bool names_descriptor(std::string_view path) {
    return take(path, "/proc/") && take_number(path) && take(path, "/fd/") && take_number(path) &&
           path.empty();
}

struct stat status_of(int fd, const std::string& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) throw SystemError("fstat of " + path, errno);
    return info;
}

}  // namespace

std::string announced_path(int fd) {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), fd);
}

int open_announced(const std::string& path) {
    enforce(names_descriptor(path), "shared memory is announced as /proc/PID/fd/FD, not as '{}'",
            path.substr(0, 64));
    const FileDescriptor place(::open(path.c_str(), O_PATH | O_CLOEXEC));  // opens nothing yet
    if (place.get() < 0) throw SystemError("open of " + path, errno);
    const struct stat info = status_of(place.get(), path);
    enforce(S_ISREG(info.st_mode), "{} is no memory but another kind of file", path);
    enforce(info.st_uid == ::geteuid(), "{} is memory of user {}, and this process runs as user {}", path,
            info.st_uid, ::geteuid());
    const std::string again = fmt::format("/proc/self/fd/{}", place.get());
    FileDescriptor memory(::open(again.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (memory.get() < 0) throw SystemError("open of " + path, errno);
    constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);  // fails on files that are no memfd
    enforce(seals >= 0 && (seals & kNeeded) == kNeeded,
            "{} is no memory of a sealed size: whoever has it could cut it short", path);
    return memory.release();
}

SharedArena open_announced_arena(const std::string& path, std::size_t bytes) {
    FileDescriptor memory(open_announced(path));
    const auto size = static_cast<std::size_t>(status_of(memory.get(), path).st_size);
    enforce(size == bytes, "{} has {} bytes, {} announced", path, size, bytes);
    return SharedArena::open(memory.release(), bytes);
}

}  // namespace tandem
