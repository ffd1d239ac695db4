#include "common/http/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace tandem::http {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& message) {
    throw ConfigError("command line", "--listen", "unix:" + path + " " + message);
}

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path))
        fail(path, fmt::format("is longer than the {} bytes that a socket's path may have",
                               sizeof(address.sun_path) - 1));
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

FileDescriptor open_socket(const std::string& path) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) fail(path, std::string("cannot be used: ") + std::strerror(errno));
    return socket;
}

// Whether the file is a socket where nobody answers.
bool stale(const std::string& path, const sockaddr_un& address) {
    struct stat file {};
    if (::lstat(path.c_str(), &file) != 0) return errno == ENOENT;
    if (!S_ISSOCK(file.st_mode)) fail(path, "cannot be used: that file is there and is no socket");
    const FileDescriptor caller = open_socket(path);
    const int result = ::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    return result != 0 && (errno == ECONNREFUSED || errno == ENOENT);
}

}  // namespace

ListeningFile::ListeningFile(const std::string& path) : path_(path) {
    const sockaddr_un address = address_of(path);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    socket_ = open_socket(path);
    ::fchmod(socket_.get(), S_IRUSR | S_IWUSR);  // the file that bind makes has it from its first moment
    int result = ::bind(socket_.get(), generic, sizeof(address));
    if (result != 0 && errno == EADDRINUSE) {
        if (!stale(path, address))
            fail(path, "is in use; stop the program that answers there, or choose another path");
        ::unlink(path.c_str());
        result = ::bind(socket_.get(), generic, sizeof(address));
    }
    if (result != 0 || ::listen(socket_.get(), SOMAXCONN) != 0 || ::lstat(path.c_str(), &made_) != 0)
        fail(path, std::string("cannot be used: ") + std::strerror(errno));
}

ListeningFile::~ListeningFile() {
    struct stat now {};
    if (::lstat(path_.c_str(), &now) == 0 && now.st_dev == made_.st_dev && now.st_ino == made_.st_ino)
        ::unlink(path_.c_str());
}

}  // namespace tandem::http
