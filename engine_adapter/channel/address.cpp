#include "engine_adapter/channel/channel.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

namespace tandem::engine {

namespace {
constexpr std::string_view kPrefix = "unix-abstract:";
}

AbstractAddress parse_abstract_address(const std::string& address) {
    AbstractAddress result;
    enforce(address.starts_with(kPrefix) && address.size() > kPrefix.size(),
            "'{}' is not a receiver's address (unix-abstract:NAME)", address);
    const std::string name = address.substr(kPrefix.size());
    enforce(name.size() < sizeof(result.address.sun_path), "the receiver's name '{}' is too long", name);
    result.address.sun_family = AF_UNIX;
    std::memcpy(result.address.sun_path + 1, name.data(), name.size());  // a leading zero byte: abstract
    result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return result;
}

Listener listen_abstract() {
    std::random_device random;
    for (int attempt = 0; attempt < 8; ++attempt) {
        Listener listener;
        listener.address = fmt::format("{}tandem-{}-{:08x}{:08x}", kPrefix, ::getpid(), random(), random());
        const AbstractAddress at = parse_abstract_address(listener.address);
        listener.socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!listener.socket) throw SystemError("socket", errno);
        if (::bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0) {
            if (::listen(listener.socket.get(), 8) != 0) throw SystemError("listen", errno);
            return listener;
        }
        if (errno != EADDRINUSE) throw SystemError("bind of " + listener.address, errno);
    }
    throw Error("no free abstract socket name in 8 attempts");
}

void require_same_user(int socket, const std::string& peer) {
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
        throw SystemError("SO_PEERCRED", errno);
    }
    if (credentials.uid != ::geteuid()) {
        throw TransportError(peer, "connect",
                             fmt::format("runs as user {}, not {}", credentials.uid, ::geteuid()));
    }
}

}  // namespace tandem::engine
