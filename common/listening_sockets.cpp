#include "common/listening_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "common/deadline.h"
#include "common/error.h"
#include "common/resolve.h"

namespace tandem {
namespace {

constexpr int kMostPorts = 32;  // that are tried where any will do
constexpr std::chrono::seconds kLookup{20};

Addresses addresses_of(const std::string& host) {
    try {
        return resolve(host, 0, Deadline::after(kLookup));
    } catch (const DeadlineExceeded& error) {
        throw BadInput(error.what());
    }
}

// Sets errno where there is none.
FileDescriptor listen_at_one(const SocketAddress& at, bool alone) {
    FileDescriptor socket(::socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!socket) return socket;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at.family() == AF_INET6 && !alone)
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (::bind(socket.get(), at.get(), at.length()) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
        return socket;
    const int error = errno;
    socket.reset();
    errno = error;
    return socket;
}

bool is_absent(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == ENODEV;
}

// No sockets: an address had the port that another gave in use.
ListeningSockets try_listening(Addresses& addresses, int wanted) {
    ListeningSockets all{{}, wanted, true};
    int absent = 0;
    for (SocketAddress& at : addresses) {
        at.set_port(all.port);
        FileDescriptor socket = listen_at_one(at, addresses.size() == 1);
        const int error = socket ? 0 : errno;
        if (error == EADDRINUSE && all.port != wanted) return {};
        if (error != 0 && !is_absent(error)) throw SystemError("listen", error);
        if (error != 0) {
            absent = error;
            continue;
        }
        all.port = SocketAddress::of_this_end(socket.get()).port();
        all.loopback = all.loopback && at.loopback();
        all.sockets.push_back({at.family(), std::move(socket)});
    }
    if (all.sockets.empty()) throw SystemError("listen", absent);
    return all;
}

}  // namespace

ListeningSockets listen_at(const std::string& host, int port) {
    Addresses addresses = addresses_of(host);
    for (int i = 0; i < kMostPorts; ++i) {
        ListeningSockets all = try_listening(addresses, port);
        if (!all.sockets.empty()) return all;
    }
    throw SystemError("listen", EADDRINUSE);
}

}  // namespace tandem
