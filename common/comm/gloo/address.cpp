#include "common/comm/gloo/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/resolve.h"
#include "common/socket_address.h"

namespace tandem::comm::gloo {
namespace {

struct Interface {
    std::string name;
    std::string ip;
    bool loopback = false;
};

// Those that are up and have an address, IPv4 first. IPv6 addresses of one link only are left out: they would
// need the peer's name for the link.
std::vector<Interface> interfaces() {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0) throw SystemError("getifaddrs", errno);
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, ::freeifaddrs);
    std::vector<Interface> found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
            if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
            if ((at->ifa_flags & IFF_UP) == 0) continue;
            const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            const std::string ip = SocketAddress(at->ifa_addr, bytes).host();
            if (ip == "?" || ip.find('%') != std::string::npos) continue;
            found.push_back({at->ifa_name, ip, (at->ifa_flags & IFF_LOOPBACK) != 0});
        }
    }
    return found;
}

std::string listed(const std::vector<Interface>& all) {
    std::string text;
    for (const auto& one : all) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.name, one.ip);
    return text.empty() ? "none" : text;
}

Addresses addresses_of_master(const std::string& host, Deadline deadline) {
    constexpr int kDiscard = 9;  // nothing is sent there
    try {
        return resolve(host, kDiscard, deadline);
    } catch (const BadInput& error) {
        throw ConfigError("environment", "MASTER_ADDR",
                          fmt::format("'{}' has no address: {}", host, error.what()));
    }
}

// The address that packets to `host` start from: a connected datagram socket knows it, and sends nothing.
std::string source_address(const std::string& host, Deadline deadline) {
    for (const SocketAddress& to : addresses_of_master(host, deadline)) {
        const FileDescriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (socket && ::connect(socket.get(), to.get(), to.length()) == 0)
            return SocketAddress::of_this_end(socket.get()).host();
    }
    return "";
}

}  // namespace

ListenAddress listen_address(const std::string& master_host, Deadline deadline) {
    const std::vector<Interface> all = interfaces();
    for (const char* variable : {"TANDEM_IFACE", "GLOO_SOCKET_IFNAME"}) {
        const char* value = std::getenv(variable);
        if (value == nullptr || *value == '\0') continue;
        const std::string wanted = std::string(value).substr(0, std::string(value).find(','));
        for (const auto& one : all) {
            if (one.name == wanted) return {one.ip, one.name, variable, one.loopback};
        }
        throw ConfigError(
            "environment", variable,
            fmt::format("no network interface '{}' that is up and has an address; there are: {}", wanted,
                        listed(all)));
    }
    const std::string ip = source_address(master_host, deadline);
    for (const auto& one : all) {
        if (one.ip == ip) return {one.ip, one.name, "the route to " + master_host, one.loopback};
    }
    // 127.0.1.1, which Debian gives a host's own name, is on no interface by itself.
    if (ip.rfind("127.", 0) == 0) return {ip, "lo", "the route to " + master_host, true};
    throw ConfigError(
        "environment", "TANDEM_IFACE",
        fmt::format("not set, and no network interface has a route to MASTER_ADDR {}; there are: {}",
                    master_host, listed(all)));
}

}  // namespace tandem::comm::gloo
