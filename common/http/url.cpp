#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "common/http/client.h"
#include "common/http/server.h"

namespace tandem::http {
namespace {

// Of unix:/PATH and unix:///PATH; empty: neither.
std::string socket_path(const std::string& text) {
    const std::string scheme = "unix:";
    if (!text.starts_with(scheme)) return "";
    std::string path = text.substr(scheme.size());
    if (path.starts_with("//")) path.erase(0, 2);
    return path.starts_with("/") && !path.ends_with("/") ? path : "";
}

// Of a URL that names a port.
HostPort host_port_of(const std::string& authority, const std::string& quoted) {
    HostPort parsed;
    try {
        parsed = parse_host_port(authority);
    } catch (const BadInput& error) {
        throw BadInput(fmt::format("URL \"{}\" has no valid port: {}", quoted, error.what()));
    }
    enforce(parsed.port != 0, "URL \"{}\" has no valid port", quoted);
    return parsed;
}

}  // namespace

Url parse_url(const std::string& url, const std::string& written) {
    const std::string& quoted = written.empty() ? url : written;
    if (std::string path = socket_path(url); !path.empty()) return {"localhost", "", "", std::move(path)};
    const std::string scheme = "http://";
    enforce(url.starts_with(scheme), "URL \"{}\" must be http://HOST[:PORT] or unix:///PATH", quoted);
    const std::string rest = url.substr(scheme.size());
    const auto slash = rest.find('/');
    const std::string authority = rest.substr(0, slash);
    Url result;
    result.port = "80";
    if (slash != std::string::npos) result.prefix = rest.substr(slash);
    while (!result.prefix.empty() && result.prefix.back() == '/') result.prefix.pop_back();
    // The URL is not repeated: that is where a password would be.
    enforce(authority.find('@') == std::string::npos,
            "a URL names a user before '@': keys come from the environment or a file");
    enforce(!authority.empty() && authority.rfind(':') != 0, "URL \"{}\" names no host", quoted);
    const bool has_port = authority.find(':') != std::string::npos && authority.back() != ']';
    result.host = has_port ? "" : parse_host(authority);
    enforce(!result.host.starts_with("["), "URL \"{}\" has no IPv6 address in its brackets", quoted);
    if (!has_port) return result;
    const HostPort parsed = host_port_of(authority, quoted);
    result.host = parsed.host;
    result.port = std::to_string(parsed.port);
    return result;
}

ListenAddress parse_listen_address(const std::string& text, const std::string& option) {
    if (std::string path = socket_path(text); !path.empty()) return {"", 0, std::move(path)};
    try {
        HostPort parsed = parse_host_port(text);
        return {std::move(parsed.host), parsed.port};
    } catch (const BadInput& error) {
        throw ConfigError("command line", option, std::string(error.what()) + " (or unix:/PATH)");
    }
}

}  // namespace tandem::http
