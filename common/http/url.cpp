#include <utility>

#include "common/error.h"
#include "common/http/client.h"
#include "common/http/server.h"

namespace tandem::http {
namespace {

bool is_port(const std::string& text) {
    if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string::npos)
        return false;
    return std::stoi(text) <= 65535;
}

// Of unix:/PATH and unix:///PATH; empty: neither.
std::string socket_path(const std::string& text) {
    const std::string scheme = "unix:";
    if (!text.starts_with(scheme)) return "";
    std::string path = text.substr(scheme.size());
    if (path.starts_with("//")) path.erase(0, 2);
    return path.starts_with("/") && !path.ends_with("/") ? path : "";
}

}  // namespace

Url parse_url(const std::string& url, const std::string& written) {
    const std::string& quoted = written.empty() ? url : written;
    if (std::string path = socket_path(url); !path.empty()) return {"localhost", "", "", std::move(path)};
    const std::string scheme = "http://";
    enforce(url.starts_with(scheme), "URL \"{}\" must be http://HOST[:PORT] or unix:///PATH", quoted);
    const std::string rest = url.substr(scheme.size());
    const auto slash = rest.find('/');
    Url result;
    result.host = rest.substr(0, slash);
    result.port = "80";
    if (slash != std::string::npos) result.prefix = rest.substr(slash);
    while (!result.prefix.empty() && result.prefix.back() == '/') result.prefix.pop_back();
    // The URL is not repeated: that is where a password would be.
    enforce(result.host.find('@') == std::string::npos,
            "a URL names a user before '@': keys come from the environment or a file");
    if (const auto colon = result.host.rfind(':');
        colon != std::string::npos && !result.host.ends_with("]")) {
        result.port = result.host.substr(colon + 1);
        result.host.resize(colon);
        enforce(is_port(result.port) && result.port != "0", "URL \"{}\" has no valid port", quoted);
    }
    if (result.host.starts_with("[") && result.host.ends_with("]"))
        result.host = result.host.substr(1, result.host.size() - 2);
    enforce(!result.host.empty(), "URL \"{}\" names no host", quoted);
    return result;
}

ListenAddress parse_listen_address(const std::string& text, const std::string& option) {
    if (std::string path = socket_path(text); !path.empty()) return {"", 0, std::move(path)};
    const auto colon = text.rfind(':');
    const bool valid = colon != std::string::npos && colon > 0 && is_port(text.substr(colon + 1));
    if (!valid) {
        throw ConfigError("command line", option,
                          "\"" + text + "\" is not HOST:PORT, e.g. 127.0.0.1:30000, nor unix:/PATH");
    }
    return {text.substr(0, colon), std::stoi(text.substr(colon + 1))};
}

}  // namespace tandem::http
