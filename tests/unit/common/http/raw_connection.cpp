#include "tests/unit/common/http/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace tandem::http {
namespace {

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

}  // namespace

RawConnection::RawConnection(int port, int receive_buffer)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::abort();
    const timeval limit{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

RawConnection::~RawConnection() {
    ::close(fd_);
}

void RawConnection::send(const std::string& bytes) const {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
        const auto n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;  // the peer closed: what it answered is still readable
        sent += static_cast<std::size_t>(n);
    }
}

std::string RawConnection::read_until(const std::string& needle) const {
    std::string all;
    char block[4096];
    while (all.find(needle) == std::string::npos) {
        const auto n = ::recv(fd_, block, sizeof(block), 0);
        if (n <= 0) break;
        all.append(block, static_cast<std::size_t>(n));
    }
    return all;
}

void RawConnection::read_some(std::size_t bytes) const {
    std::string block(bytes, '\0');
    if (::recv(fd_, block.data(), bytes, 0) <= 0) return;
}

std::size_t RawConnection::count_to_end() const {
    std::size_t bytes = 0;
    std::string block(65536, '\0');
    for (;;) {
        const auto n = ::recv(fd_, block.data(), block.size(), 0);
        if (n <= 0) return bytes;
        bytes += static_cast<std::size_t>(n);
    }
}

bool RawConnection::closed_by_peer() const {
    char block[4096];
    for (;;) {
        const auto n = ::recv(fd_, block, sizeof(block), 0);
        if (n == 0) return true;
        if (n < 0) return errno == ECONNRESET;
    }
}

bool RawConnection::open() const {
    char byte = 0;
    const auto n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

void RawConnection::end_sending() const {
    ::shutdown(fd_, SHUT_WR);
}

SilentListener::SilentListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);
    if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::abort();
    if (::listen(fd_, 8) != 0) std::abort();
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
}

SilentListener::~SilentListener() {
    ::close(fd_);
}

int SilentListener::accept() const {
    return ::accept(fd_, nullptr, nullptr);
}

}  // namespace tandem::http
