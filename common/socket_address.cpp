#include "common/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/error.h"
#include "common/host_port.h"

namespace tandem {

SocketAddress::SocketAddress(const sockaddr* bytes, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof bytes_)) {
    std::memcpy(&bytes_, bytes, length_);
}

SocketAddress SocketAddress::of_this_end(int socket) {
    SocketAddress at;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at.bytes_), &at.length_) != 0)
        throw SystemError("getsockname", errno);
    return at;
}

SocketAddress SocketAddress::of_other_end(int socket) {
    SocketAddress at;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&at.bytes_), &at.length_) != 0)
        throw SystemError("getpeername", errno);
    return at;
}

// Of either family at the same place.
int SocketAddress::port() const {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&bytes_)->sin_port);
}

void SocketAddress::set_port(int port) {
    reinterpret_cast<sockaddr_in*>(&bytes_)->sin_port = htons(static_cast<std::uint16_t>(port));
}

bool SocketAddress::loopback() const {
    if (family() == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&bytes_)->sin6_addr) != 0;
    return ntohl(reinterpret_cast<const sockaddr_in*>(&bytes_)->sin_addr.s_addr) >> 24 == 127;
}

std::string SocketAddress::host() const {
    char text[NI_MAXHOST] = "";
    return ::getnameinfo(get(), length_, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "?";
}

std::string SocketAddress::host_port() const {
    return to_host_port(host(), port());
}

bool SocketAddress::operator==(const SocketAddress& other) const {
    return length_ == other.length_ && std::memcmp(&bytes_, &other.bytes_, length_) == 0;
}

}  // namespace tandem
