#include "common/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem {

namespace {

constexpr std::size_t kReadStep = std::size_t{64} << 10;

[[noreturn]] void refuse_size(const std::string& file, std::size_t bytes, std::size_t most_bytes) {
    throw ConfigError(file, "", fmt::format("is {} bytes long, more than {}", bytes, most_bytes));
}

}  // namespace

std::string read_text_file(const std::string& file, std::size_t most_bytes) {
    const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!fd) throw ConfigError(file, "", std::string("cannot be opened: ") + std::strerror(errno));
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw SystemError("fstat of " + file, errno);
    if (S_ISDIR(status.st_mode)) throw ConfigError(file, "", "is a folder, not a file");
    if (!S_ISREG(status.st_mode)) throw ConfigError(file, "", "is not a regular file");
    const auto announced = static_cast<std::size_t>(status.st_size);
    if (announced > most_bytes) refuse_size(file, announced, most_bytes);

    // To its end, for it may grow or shrink meanwhile.
    std::string text;
    std::size_t got = 0;
    while (true) {
        text.resize(std::max(announced + 1, got + kReadStep));
        const ssize_t n = ::read(fd.get(), text.data() + got, text.size() - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw ConfigError(file, "", std::string("cannot be read: ") + std::strerror(errno));
        got += static_cast<std::size_t>(n);
        if (got > most_bytes) refuse_size(file, got, most_bytes);
        if (n == 0) break;
    }
    text.resize(got);
    return text;
}

std::string read_text_file_if_there(const std::string& file, std::size_t most_bytes) {
    if (::access(file.c_str(), F_OK) != 0 && errno == ENOENT) return "";
    return read_text_file(file, most_bytes);
}

}  // namespace tandem
