// Who may ask a server: keys with SGLang's meaning, and on a loopback address the headers that tell a browser's page
// apart from a program.
//
//   keys             open     user                 admin
//   none             anybody  anybody              anybody
//   api_key          anybody  api_key              api_key
//   admin_api_key    anybody  anybody              admin_api_key
//   both             anybody  either               admin_api_key
// A key comes as "Authorization: Bearer KEY" or "x-api-key: KEY".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::http {

enum class Access : unsigned char { open, user, admin };

struct AccessRules {
    std::string api_key;        // empty: none
    std::string admin_api_key;  // empty: none
    bool loopback = false;      // the server listens on a loopback address
};

// The headers that matter, empty where there are none.
struct Credentials {
    std::string_view host = {};
    std::string_view origin = {};
    std::string_view authorization = {};
    std::string_view x_api_key = {};
};

struct Refusal {
    int status;  // 401, 403
    std::string message;
};
std::optional<Refusal> refuse_access(const AccessRules& rules, Access needed, const Credentials& given);

// The most that they may ask for.
Access granted_access(const AccessRules& rules, const Credentials& given);
// One of the keys that there are is among them.
bool shows_key(const AccessRules& rules, const Credentials& given);

// The key that a client of an engine sends: what the environment's variable says, or none. "VLLM_API_KEY" and
// "SGLANG_API_KEY" are those servers' own.
std::string key_from_environment(const char* variable = "TANDEM_API_KEY");

// Of "HOST", "HOST:PORT" or "[HOST]:PORT": localhost, 127.0.0.0/8 or ::1.
bool names_loopback(std::string_view host);

// Takes as long for any two texts of the same lengths.
bool same_key(std::string_view given, std::string_view key);

}  // namespace tandem::http
