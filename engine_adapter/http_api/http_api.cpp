#include "engine_adapter/http_api/http_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/http/error_text.h"
#include "common/json_text.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestAnswer = 16u << 20;

// "vllm://HOST:PORT" → "http://HOST:PORT"
std::string http_url(const std::string& name) {
    return "http" + name.substr(std::min(name.find("://"), name.size()));
}

}  // namespace

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
    std::string text = http::error_text(response);
    if (status == 401 || status == 403) {
        text += has_key_ ? fmt::format("; the key that was sent is not this server's: see {} and --key-file",
                                       hints_.key)
                         : fmt::format("; set {}, or give a --key-file", hints_.key);
    } else if (status == 404) {
        text += "; " + hints_.missing_route;
    } else if (status == 503 || status == 504) {
        text += "; it is starting or busy: try again later";
    } else if (status >= 500) {
        text += "; see the server's log";
    }
    return text;
}

json HttpApi::checked(const std::string& phase, const http::Response& response) {
    const int status = response.status;
    if (status < 200 || status >= 300)
        throw TransportError(name_, phase, why(response), status == 503 || status == 504);
    json parsed = response.body.empty() ? json() : json_text_or_nothing(response.body);
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
