#include "common/http/target.h"

#include <strings.h>

#include <charconv>

namespace tandem::http {
namespace {

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        unsigned char byte = 0;
        const std::string_view digits = text.substr(i + 1, 2);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) return {};
        out += static_cast<char>(byte);
        i += 2;
    }
    return out;
}

// Of "http://" or "https://"; 0: neither.
std::size_t scheme_length(std::string_view text) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (text.size() > scheme.size() && ::strncasecmp(text.data(), scheme.data(), scheme.size()) == 0)
            return scheme.size();
    }
    return 0;
}

}  // namespace

std::optional<Target> parse_target(std::string_view text) {
    Target target;
    if (text == "*") return Target{"*", ""};  // OPTIONS of the server
    if (const std::size_t scheme = scheme_length(text); scheme != 0) {
        text.remove_prefix(scheme);
        const std::size_t end = text.find_first_of("/?");
        target.authority = std::string(text.substr(0, end));
        if (target.authority->empty() || target.authority->find('@') != std::string::npos) return {};
        text = end == std::string_view::npos ? std::string_view() : text.substr(end);
        if (text.empty() || text.front() == '?') target.path = "/";
    } else if (text.empty() || text.front() != '/') {
        return {};
    }
    const std::size_t question = text.find('?');
    if (question != std::string_view::npos) target.query = std::string(text.substr(question + 1));
    auto path = percent_decoded(text.substr(0, question));
    if (!path) return {};
    target.path += *path;
    while (target.path.size() > 1 && target.path.back() == '/') target.path.pop_back();
    return target;
}

}  // namespace tandem::http
