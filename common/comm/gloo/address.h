// The address at which a rank listens for its peers: on the network interface that TANDEM_IFACE or
// GLOO_SOCKET_IFNAME (PyTorch's name for it) names, else the one from which the route to MASTER_ADDR starts.
#pragma once

#include <string>

#include "common/deadline.h"

namespace tandem::comm::gloo {

struct ListenAddress {
    std::string ip;         // numeric
    std::string interface;  // "eth0"
    std::string reason;     // "TANDEM_IFACE", or "the route to 10.0.0.1"
    bool loopback = false;
};

// Throws ConfigError naming the variable, and the interfaces that there are, when nothing fits; DeadlineExceeded: nobody says
// what address that host has.
ListenAddress listen_address(const std::string& master_host, Deadline deadline);

}  // namespace tandem::comm::gloo
