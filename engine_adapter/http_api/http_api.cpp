#include "engine_adapter/http_api/http_api.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestAnswer = 16u << 20;

// "vllm://HOST:PORT" → "http://HOST:PORT"
std::string http_url(const std::string& name) {
    return "http" + name.substr(std::min(name.find("://"), name.size()));
}

std::string any_message_of(const std::string& body) {
    json at = json::parse(body, nullptr, false);
    if (at.is_object() && at.contains("error")) at = json(at["error"]);
    if (at.is_string()) return at.get<std::string>();
    for (const char* key : {"message", "detail"}) {
        if (!at.is_object() || !at.contains(key)) continue;
        return at[key].is_string() ? at[key].get<std::string>() : at[key].dump();
    }
    return body.substr(0, 300);
}

}  // namespace

// It comes to terminals and logs: no control characters.
std::string message_of(const std::string& body) {
    std::string message = any_message_of(body);
    std::replace_if(
        message.begin(), message.end(),
        [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0 && c != '\n'; }, ' ');
    return message;
}

HttpApi::HttpApi(const std::string& name, const std::string& key, HttpApiHints hints)
    : name_(name),
      has_key_(!key.empty()),
      hints_(std::move(hints)),
      http_(http_url(name), key, kLargestAnswer) {}

http::Response HttpApi::ask(const std::string& method, const std::string& target, const std::string& body,
                            Deadline deadline) {
    http::Response response = http_.request(method, target, body, deadline);
    // After an exception in a route the server closes the connection behind its answer, which the next call would meet.
    if (response.status >= 500) http_.close();
    return response;
}

std::string HttpApi::why(const http::Response& response) const {
    const int status = response.status;
    std::string text = fmt::format("HTTP {}: {}", status, message_of(response.body));
    if (status == 401 || status == 403) {
        text += has_key_ ? fmt::format("; the key that was sent is not this server's: see {} and --key-file",
                                       hints_.key)
                         : fmt::format("; set {}, or give a --key-file", hints_.key);
    } else if (status == 404) {
        text += "; " + hints_.missing_route;
    }
    return text;
}

json HttpApi::checked(const std::string& phase, const http::Response& response) {
    const int status = response.status;
    if (status < 200 || status >= 300)
        throw TransportError(name_, phase, why(response), status == 503 || status == 504);
    json parsed = response.body.empty() ? json() : json::parse(response.body, nullptr, false);
    if (parsed.is_discarded()) throw TransportError(name_, phase, "the answer is not JSON");
    return parsed;
}

json HttpApi::get(const std::string& target, Deadline deadline) {
    return checked("GET " + target, ask("GET", target, "", deadline));
}

json HttpApi::post(const std::string& target, const std::string& body, Deadline deadline) {
    return checked("POST " + target, ask("POST", target, body, deadline));
}

}  // namespace tandem::engine
