#include "engine_adapter/embedded/body_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::size_t kMostValues = std::size_t{4}
                                    << 20;  // of one body; each takes 16 bytes and more once parsed
constexpr int kDeepest = 32;
constexpr std::size_t kLongestKey = 64;  // of what is quoted

// What a text takes once it is parsed. The JSON library copies and prints recursively, so depth costs stack.
struct Extent {
    int depth = 0;           // of brackets and braces outside strings
    std::size_t values = 0;  // at least as many as it has
};
Extent extent_of(const std::string& text) {
    int depth = 0, deepest = 0;
    std::size_t values = 1;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
            ++values;
        } else if (c == ',') {
            ++values;
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return {deepest, values};
}

// "line 3, column 17" of the byte where the parser gave up.
std::string place_of(const std::string& text, std::size_t byte) {
    std::size_t line = 1, column = 0;
    for (std::size_t i = 0; i < std::min(byte, text.size()); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        const bool continues = (c & 0xC0) == 0x80;  // a character of several bytes
        if (!continues) ++column;
        if (c == '\n') ++line, column = 0;
    }
    return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

// The library's reason, without its own prefix and without the text that it has read, which may be megabytes.
std::string reason_of(const json::parse_error& error) {
    const std::string text = error.what();
    const std::string marker = " - ";
    const std::size_t dash = text.find(marker);
    const std::size_t begin = dash == std::string::npos ? 0 : dash + marker.size();
    return text.substr(begin, text.find("; last read", begin) - begin);
}

// The library quotes the number, "… parsing '1e999'", and does not say where.
std::string too_large_number(const std::string& body, const std::string& what) {
    const std::size_t quote = what.find('\'');
    const std::string number =
        quote == std::string::npos ? "" : what.substr(quote + 1, what.rfind('\'') - quote - 1);
    return fmt::format("the body is not valid JSON at {}: a number that no double holds",
                       place_of(body, body.find(number) + 1));
}

bool asks_for_nothing(const json& value) {
    return value.is_null() || value == false || value == 0 || value == "" ||
           (value.is_structured() && value.empty());
}

}  // namespace

json parse_body(const std::string& body) {
    if (body.empty()) return json::object();
    const Extent extent = extent_of(body);
    enforce(extent.depth <= kDeepest, "the body is nested deeper than {} levels", kDeepest);
    enforce(extent.values <= kMostValues, "the body holds more than {} values", kMostValues);
    json parsed;
    try {
        parsed = json::parse(body);
    } catch (const json::parse_error& error) {
        throw BadInput(fmt::format("the body is not valid JSON at {}: {}", place_of(body, error.byte),
                                   reason_of(error)));
    } catch (const json::out_of_range& error) {
        throw BadInput(too_large_number(body, error.what()));
    }
    enforce(parsed.is_object(), "the body must be a JSON object");
    return parsed;
}

void check_keys(const json& body, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : body.items()) {
        if (std::find(known.begin(), known.end(), key) != known.end() || asks_for_nothing(value)) continue;
        throw BadInput(fmt::format("{} is not supported by this engine", key.substr(0, kLongestKey)));
    }
}

const json& field(const json& body, const char* key) {
    static const json kNull;
    const auto found = body.find(key);
    return found == body.end() ? kNull : *found;
}

}  // namespace tandem::engine
