// The target of a request's first line, taken apart: origin form ("/path?query") and absolute form
// ("http://host/path?query", which a server must take: RFC 9112, 3.2.2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::http {

struct Target {
    std::string path;   // percent-encoding undone, without slashes at its end ("/" stays)
    std::string query;  // after '?', not decoded
    // Of the absolute form: "host:port", which counts in the place of the header Host.
    std::optional<std::string> authority = {};
};

// "*" is a path of its own. Nothing: neither form, or a percent-encoding that is none.
std::optional<Target> parse_target(std::string_view text);

}  // namespace tandem::http
