// The address of one end of a TCP connection: IPv4 or IPv6, and a port.
#pragma once

#include <sys/socket.h>

#include <string>

namespace tandem {

class SocketAddress {
  public:
    SocketAddress(const sockaddr* bytes, socklen_t length);
    // Of a socket's own end, and of who is at the other. Throw SystemError: that is not connected any more.
    static SocketAddress of_this_end(int socket);
    static SocketAddress of_other_end(int socket);

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes_); }
    socklen_t length() const { return length_; }
    int family() const { return bytes_.ss_family; }  // AF_INET, AF_INET6
    int port() const;
    void set_port(int port);
    bool loopback() const;
    std::string host() const;       // numeric, without brackets
    std::string host_port() const;  // "10.0.0.1:4711", "[::1]:4711"
    bool operator==(const SocketAddress& other) const;

  private:
    SocketAddress() = default;
    sockaddr_storage bytes_{};
    socklen_t length_ = sizeof(sockaddr_storage);
};

}  // namespace tandem
