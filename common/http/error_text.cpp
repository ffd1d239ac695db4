#include "common/http/error_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/printable.h"

namespace tandem::http {
namespace {

using nlohmann::json;

constexpr std::size_t kLongest = 300;  // of a body in no form that is known

// {"error": {"message": …}}, {"error": …}, {"message": …}, {"detail": …}
std::string any_message_of(const std::string& body) {
    json at = json_text_or_nothing(body);
    if (at.is_object() && at.contains("error")) at = json(at["error"]);
    if (at.is_string()) return at.get<std::string>();
    for (const char* key : {"message", "detail"}) {
        if (!at.is_object() || !at.contains(key)) continue;
        return at[key].is_string() ? at[key].get<std::string>() : text_of_json(at[key]);
    }
    return body.substr(0, kLongest);
}

}  // namespace

std::string message_of(const std::string& body) {
    return printable(any_message_of(body));
}

std::string error_text(const Response& response) {
    std::string text = fmt::format("HTTP {}", response.status);
    if (!response.location.empty()) {
        return text + fmt::format(": a redirect to {}, which is not followed: name that server",
                                  printable(response.location));
    }
    const std::string message = message_of(response.body);
    return message.empty() ? text : text + ": " + message;
}

}  // namespace tandem::http
