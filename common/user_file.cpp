#include "common/user_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem {

std::ifstream open_to_read(const std::string& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
        throw ConfigError(file, "", "is a folder, not a file");
    errno = 0;
    std::ifstream in(file, std::ios::binary);
    if (!in) throw ConfigError(file, "", std::string("cannot be read: ") + std::strerror(errno));
    return in;
}

std::string read_user_file(const std::string& file, std::size_t most_bytes) {
    auto in = open_to_read(file);
    std::string text;
    std::string part(std::size_t{1} << 16, '\0');
    while (in.read(part.data(), static_cast<std::streamsize>(part.size())), in.gcount() > 0) {
        text.append(part, 0, static_cast<std::size_t>(in.gcount()));
        if (text.size() > most_bytes)
            throw ConfigError(file, "", fmt::format("is larger than {} bytes", most_bytes));
    }
    return text;
}

bool next_line(std::istream& in, std::string& line, std::size_t most_bytes) {
    line.clear();
    for (int c = in.get(); c != std::istream::traits_type::eof(); c = in.get()) {
        if (c == '\n') return true;
        line += static_cast<char>(c);
        if (line.size() > most_bytes) return true;
    }
    return !line.empty();
}

void require_writable(const std::string& option, const std::string& file) {
    if (file.empty()) return;
    const bool there = ::access(file.c_str(), F_OK) == 0;
    // A file that is not there is not made, for whoever waits for it: one beside it is.
    const std::string tried = there ? file : file + ".tmp." + std::to_string(::getpid());
    const int make = there ? 0 : O_CREAT | O_EXCL;
    const FileDescriptor out(::open(tried.c_str(), O_WRONLY | make | O_NONBLOCK | O_CLOEXEC, 0600));
    const bool waits = !out && errno == ENXIO;  // a pipe that nobody reads yet
    if (!out && !waits) {
        throw ConfigError("command line", option,
                          fmt::format("{} cannot be written: {}", file, std::strerror(errno)));
    }
    if (!there) ::unlink(tried.c_str());
}

}  // namespace tandem
