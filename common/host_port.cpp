#include "common/host_port.h"

#include <arpa/inet.h>

#include "common/error.h"

namespace tandem {
namespace {

// With a zone too ("fe80::1%eth0").
bool is_ipv6(std::string_view text) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), &address) == 1;
}

bool is_bracketed(std::string_view text) {
    return text.size() > 2 && text.front() == '[' && text.back() == ']' &&
           is_ipv6(text.substr(1, text.size() - 2));
}

bool is_port(std::string_view text) {
    if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos)
        return false;
    return std::stoi(std::string(text)) <= 65535;
}

}  // namespace

HostPort parse_host_port(const std::string& text) {
    const auto colon = text.rfind(':');
    const std::string host = text.substr(0, colon);
    const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (is_ipv6(host) && is_port(port)) {
        throw BadInput(fmt::format("\"{}\" has an IPv6 address without brackets: write {}", text,
                                   to_host_port(host, port)));
    }
    if (is_ipv6(text) || is_bracketed(text)) {
        throw BadInput(fmt::format("\"{}\" is an IPv6 address without a port: write {}", text,
                                   to_host_port(parse_host(text), "PORT")));
    }
    const bool plain = !host.empty() && host.find_first_of("[]:/@ ") == std::string::npos;
    enforce(is_port(port) && (plain || is_bracketed(host)),
            "\"{}\" is not HOST:PORT, e.g. 127.0.0.1:30000 or [::1]:30000", text);
    return {parse_host(host), std::stoi(port)};
}

std::string parse_host(std::string_view text) {
    return std::string(is_bracketed(text) ? text.substr(1, text.size() - 2) : text);
}

std::string to_url_host(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

std::string to_host_port(const std::string& host, const std::string& port) {
    return to_url_host(host) + ":" + port;
}

std::string to_host_port(const std::string& host, int port) {
    return to_host_port(host, std::to_string(port));
}

}  // namespace tandem
