// Whether this machine has ::1.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "common/file_descriptor.h"

namespace tandem::test {

inline bool has_ipv6() {
    const FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_addr = in6addr_loopback;
    return socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

}  // namespace tandem::test
