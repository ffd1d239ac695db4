#include "common/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "common/error.h"

namespace tandem {
namespace {

constexpr int kMostPorts = 32;  // that are tried where any will do

struct Address {
    sockaddr_storage bytes{};
    socklen_t length = 0;
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
    int family() const { return bytes.ss_family; }
    // Of either family at the same place.
    std::uint16_t& port() { return reinterpret_cast<sockaddr_in*>(&bytes)->sin_port; }
    bool loopback() const {
        if (family() == AF_INET6)
            return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_addr) != 0;
        return ntohl(reinterpret_cast<const sockaddr_in*>(&bytes)->sin_addr.s_addr) >> 24 == 127;
    }
};

void add_addresses(const std::string& host, std::vector<Address>& all) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
        throw BadInput(::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        Address one;
        one.length = at->ai_addrlen;
        std::memcpy(&one.bytes, at->ai_addr, at->ai_addrlen);
        const bool known = std::any_of(all.begin(), all.end(), [&](const Address& other) {
            return std::memcmp(&other.bytes, &one.bytes, sizeof one.bytes) == 0;
        });
        if (!known) all.push_back(one);
    }
}

std::vector<Address> addresses_of(const std::string& host) {
    std::vector<Address> all;
    if (::strcasecmp(host.c_str(), "localhost") == 0) {
        for (const char* loopback : {"127.0.0.1", "::1"}) add_addresses(loopback, all);
    } else {
        add_addresses(host, all);
    }
    if (all.empty()) throw BadInput("it has no address");
    return all;
}

// Sets errno where there is none.
FileDescriptor listen_at_one(Address& at, bool alone) {
    FileDescriptor socket(::socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!socket) return socket;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at.family() == AF_INET6 && !alone)
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (::bind(socket.get(), at.get(), at.length) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
        return socket;
    const int error = errno;
    socket.reset();
    errno = error;
    return socket;
}

bool is_absent(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == ENODEV;
}

int port_of(int socket) {
    Address at;
    at.length = sizeof at.bytes;
    if (::getsockname(socket, at.get(), &at.length) != 0) throw SystemError("getsockname", errno);
    return ntohs(at.port());
}

// No sockets: an address had the port that another gave in use.
ListeningSockets try_listening(std::vector<Address>& addresses, int wanted) {
    ListeningSockets all{{}, wanted, true};
    int absent = 0;
    for (Address& at : addresses) {
        at.port() = htons(static_cast<std::uint16_t>(all.port));
        FileDescriptor socket = listen_at_one(at, addresses.size() == 1);
        const int error = socket ? 0 : errno;
        if (error == EADDRINUSE && all.port != wanted) return {};
        if (error != 0 && !is_absent(error)) throw SystemError("listen", error);
        if (error != 0) {
            absent = error;
            continue;
        }
        all.port = port_of(socket.get());
        all.loopback = all.loopback && at.loopback();
        all.sockets.push_back({at.family(), std::move(socket)});
    }
    if (all.sockets.empty()) throw SystemError("listen", absent);
    return all;
}

}  // namespace

ListeningSockets listen_at(const std::string& host, int port) {
    std::vector<Address> addresses = addresses_of(host);
    for (int i = 0; i < kMostPorts; ++i) {
        ListeningSockets all = try_listening(addresses, port);
        if (!all.sockets.empty()) return all;
    }
    throw SystemError("listen", EADDRINUSE);
}

}  // namespace tandem
