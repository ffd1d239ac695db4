// The sockets of a server: one at each address that its host's name means, all at one port.
#pragma once

#include <string>
#include <vector>

#include "common/file_descriptor.h"

namespace tandem {

struct ListeningSockets {
    struct One {
        int family = 0;  // AF_INET, AF_INET6
        FileDescriptor socket;
    };
    std::vector<One> sockets;  // at least one; they do not block, and no child inherits them
    int port = 0;
    bool loopback = false;  // only this machine can reach them
};

// A name is what common/resolve.h says, "localhost" thus 127.0.0.1 and ::1; :: alone takes IPv4 too. Addresses that this
// machine does not have are left out while one remains. Port 0 takes one that is free at all of them. Blocks for the
// resolver, 20 s at most. Throws BadInput where the name means nothing, and SystemError.
ListeningSockets listen_at(const std::string& host, int port);

}  // namespace tandem
