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

}  // namespace

Url parse_url(const std::string& url) {
    const std::string scheme = "http://";
    enforce(url.rfind(scheme, 0) == 0, "URL \"{}\" must start with http://", url);
    const std::string rest = url.substr(scheme.size());
    const auto slash = rest.find('/');
    Url result;
    result.host = rest.substr(0, slash);
    result.port = "80";
    if (slash != std::string::npos) result.prefix = rest.substr(slash);
    while (!result.prefix.empty() && result.prefix.back() == '/') result.prefix.pop_back();
    if (const auto colon = result.host.rfind(':'); colon != std::string::npos) {
        result.port = result.host.substr(colon + 1);
        result.host.resize(colon);
        enforce(is_port(result.port) && result.port != "0", "URL \"{}\" has no valid port", url);
    }
    enforce(!result.host.empty(), "URL \"{}\" names no host", url);
    return result;
}

ListenAddress parse_listen_address(const std::string& text) {
    const auto colon = text.rfind(':');
    const bool valid = colon != std::string::npos && colon > 0 && is_port(text.substr(colon + 1));
    if (!valid) {
        throw ConfigError("command line", "--listen",
                          "\"" + text + "\" is not HOST:PORT, e.g. 127.0.0.1:30000");
    }
    return {text.substr(0, colon), std::stoi(text.substr(colon + 1))};
}

}  // namespace tandem::http
