#include "common/comm/gloo/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/error.h"

namespace tandem::comm::gloo {
namespace {

struct Interface {
    std::string name;
    std::string ip;
    bool loopback = false;
};

std::string numeric(const sockaddr* address) {
    char text[NI_MAXHOST] = "";
    const socklen_t bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const int status = ::getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
    return status == 0 ? text : "";
}

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
            const std::string ip = numeric(at->ifa_addr);
            if (ip.empty() || ip.find('%') != std::string::npos) continue;
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

// The address that packets to `host` start from: a connected datagram socket knows it, and sends nothing.
std::string source_address(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* raw = nullptr;
    if (const int status = ::getaddrinfo(host.c_str(), "9", &hints, &raw); status != 0) {
        throw ConfigError("environment", "MASTER_ADDR",
                          fmt::format("cannot resolve '{}': {}", host, ::gai_strerror(status)));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, ::freeaddrinfo);
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
        const int fd = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        sockaddr_storage self{};
        socklen_t bytes = sizeof(self);
        const bool good = ::connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                          ::getsockname(fd, reinterpret_cast<sockaddr*>(&self), &bytes) == 0;
        ::close(fd);
        if (good) return numeric(reinterpret_cast<const sockaddr*>(&self));
    }
    return "";
}

}  // namespace

ListenAddress listen_address(const std::string& master_host) {
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
    const std::string ip = source_address(master_host);
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
