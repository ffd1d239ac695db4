// Names of sockets in the abstract namespace: "unix-abstract:NAME".
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace tandem::engine {

struct AbstractAddress {
    sockaddr_un address{};
    socklen_t length = 0;
};

// Throws InvalidArgument: not of this form, empty or too long a name.
AbstractAddress parse_abstract_address(const std::string& address);

}  // namespace tandem::engine
