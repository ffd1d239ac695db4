// HOST:PORT as options, URLs and messages write it: an IPv6 address stands in brackets ("[::1]:30000"), which are no part
// of the host. The one parser and the one printer of it.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

struct HostPort {
    std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
    int port = 0;      // 0 to 65535
};

// Throws BadInput quoting `text`: no port, or an IPv6 address without brackets, of which it says how to write it.
HostPort parse_host_port(const std::string& text);
// A host alone: brackets around an IPv6 address are taken off, anything else is as it was.
std::string parse_host(std::string_view text);

std::string to_host_port(const std::string& host, int port);
std::string to_host_port(const std::string& host, const std::string& port);
// As it stands in a URL without a port.
std::string to_url_host(const std::string& host);

}  // namespace tandem
