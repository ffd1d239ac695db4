#include "common/http/access.h"

#include <fmt/core.h>

#include <cstdlib>
#include <utility>  // before Asio: Boost 1.74 uses std::exchange without including it

#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>

namespace tandem::http {
namespace {

std::string_view key_of(const Credentials& given) {
    constexpr std::string_view kBearer = "bearer ";
    const std::string_view text = given.authorization;
    if (text.size() < kBearer.size()) return given.x_api_key;
    const boost::beast::string_view scheme(text.data(), kBearer.size());
    if (!boost::beast::iequals(scheme, boost::beast::string_view(kBearer.data(), kBearer.size())))
        return given.x_api_key;
    return text.substr(kBearer.size());
}

// Both are looked at in any case, so that the time tells nothing.
struct Shown {
    Shown(const AccessRules& rules, std::string_view key)
        : user(same_key(key, rules.api_key) && !rules.api_key.empty()),
          admin(same_key(key, rules.admin_api_key) && !rules.admin_api_key.empty()) {}

    bool user, admin;
};

bool has_key(const AccessRules& rules, Access needed, std::string_view key) {
    const Shown shown(rules, key);
    if (needed == Access::admin && !rules.admin_api_key.empty()) return shown.admin;
    return rules.api_key.empty() || shown.user || (shown.admin && needed == Access::user);
}

}  // namespace

bool names_loopback(std::string_view host) {
    if (!host.empty() && host.front() == '[') {
        host = host.substr(1, host.find(']') - 1);
    } else if (host.find(':') == host.rfind(':')) {  // more of them: an address of IPv6
        host = host.substr(0, host.find(':'));
    }
    if (boost::beast::iequals(boost::beast::string_view(host.data(), host.size()), "localhost")) return true;
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(std::string(host), error);
    return !error && address.is_loopback();
}

std::string key_from_environment(const char* variable) {
    const char* key = std::getenv(variable);
    return key == nullptr ? "" : key;
}

bool same_key(std::string_view given, std::string_view key) {
    unsigned difference = given.size() == key.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const char other = key.empty() ? '\0' : key[i % key.size()];
        difference |=
            static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other));
    }
    return difference == 0;
}

Access granted_access(const AccessRules& rules, const Credentials& given) {
    const std::string_view key = key_of(given);
    if (has_key(rules, Access::admin, key)) return Access::admin;
    return has_key(rules, Access::user, key) ? Access::user : Access::open;
}

bool shows_key(const AccessRules& rules, const Credentials& given) {
    const Shown shown(rules, key_of(given));
    return shown.user || shown.admin;
}

std::optional<Refusal> refuse_access(const AccessRules& rules, Access needed, const Credentials& given) {
    if (rules.loopback && !given.host.empty() && !names_loopback(given.host))
        return Refusal{403,
                       fmt::format("this server is not \"{}\": it listens on this machine only", given.host)};
    // A browser says which page asks; it must be one of this server's.
    if (rules.loopback && !given.origin.empty()) {
        const auto scheme = given.origin.find("://");
        if (scheme == std::string_view::npos || given.origin.substr(scheme + 3) != given.host)
            return Refusal{403, fmt::format("pages of \"{}\" may not ask this server", given.origin)};
    }
    if (needed == Access::open || has_key(rules, needed, key_of(given))) return {};
    const bool admin = needed == Access::admin && !rules.admin_api_key.empty();
    return Refusal{401, admin ? "this needs the admin API key: Authorization: Bearer KEY, or x-api-key: KEY"
                              : "this needs the API key: Authorization: Bearer KEY, or x-api-key: KEY"};
}

}  // namespace tandem::http
