// A connection to a TCP store as a stranger makes it: bytes out, bytes in.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "common/store/tcp_protocol.h"

namespace tandem {

class RawClient {
  public:
    explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval longest{.tv_sec = 20, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
        EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    }
    ~RawClient() { ::close(fd_); }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    bool send(const std::string& bytes) {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
    }
    // Fewer bytes: the server has closed, or says nothing for 20 s.
    std::string receive(std::size_t bytes) {
        std::string text(bytes, '\0');
        std::size_t got = 0;
        while (got < bytes) {
            const ssize_t more = ::recv(fd_, text.data() + got, bytes - got, 0);
            if (more <= 0) break;
            got += static_cast<std::size_t>(more);
        }
        text.resize(got);
        return text;
    }
    std::string greeting() { return receive(wire::kGreeting); }
    void finish() { ::shutdown(fd_, SHUT_WR); }  // nothing more to say
    bool closed() {
        char byte = 0;
        return ::recv(fd_, &byte, 1, 0) == 0 || errno == ECONNRESET;
    }

  private:
    int fd_;
};

inline std::string request(wire::Operation operation, std::uint32_t key_bytes, std::uint32_t value_bytes) {
    std::string text(wire::kRequestHeader, static_cast<char>(operation));
    wire::put_u32(reinterpret_cast<unsigned char*>(text.data()) + 1, key_bytes);
    wire::put_u32(reinterpret_cast<unsigned char*>(text.data()) + 5, value_bytes);
    return text;
}
inline std::string request(wire::Operation operation, const std::string& key, const std::string& value = "") {
    return request(operation, static_cast<std::uint32_t>(key.size()),
                   static_cast<std::uint32_t>(value.size())) +
           key + value;
}

}  // namespace tandem
