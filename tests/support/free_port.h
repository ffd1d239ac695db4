// A TCP port for a process that a test starts and that must be told one, where port 0 is no answer.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "common/file_descriptor.h"

namespace tandem::test {

namespace detail {

inline bool is_free(int port) {
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace detail

// It and the next one were free a moment ago, on all addresses; others at each call. Below the range that the system hands
// out by itself, so that nobody is given them meanwhile; other processes of the tests begin elsewhere.
inline int free_port() {
    constexpr int kFirst = 10'000, kPairs = 10'000;
    static int next = ::getpid();
    while (true) {
        const int port = kFirst + 2 * (next++ % kPairs);
        if (detail::is_free(port) && detail::is_free(port + 1)) return port;
    }
}

}  // namespace tandem::test
