#include "trainer/data/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr std::string_view kBlank = " \t\r\n\v\f";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Without "[json.exception.parse_error.101] parse error at line 1, column 9: ".
std::string reason_of(const json::parse_error& error) {
    const std::string text = error.what();
    const std::size_t column = text.find("column ");
    const std::size_t colon = text.find(": ", column == std::string::npos ? 0 : column);
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

// Behind the string that begins at `quote`.
std::size_t end_of_string(std::string_view text, std::size_t quote) {
    std::size_t at = quote + 1;
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2u : 1u;
    return at + 1;
}

}  // namespace

JsonLines::JsonLines(const std::string& file) : file_(file), copy_(FileCopy::of(file)), text_(copy_->text()) {
    index();
    if (lines_.empty()) throw ConfigError(file, "", "holds no lines; expects one JSON object a line");
}

void JsonLines::index() {
    std::size_t number = 1;
    for (std::size_t start = text_.starts_with(kByteOrderMark) ? 3 : 0; start < text_.size(); ++number) {
        const std::size_t end = std::min(text_.find('\n', start), text_.size());
        const std::string_view line = text_.substr(start, end - start);
        if (line.find_first_not_of(kBlank) != std::string_view::npos)
            lines_.push_back({start, line.size(), number});
        start = end + 1;
    }
}

json JsonLines::object(std::size_t index) const {
    json value;
    try {
        value = json::parse(text_of(index));
    } catch (const json::parse_error& error) {
        throw ConfigError(fmt::format("{}:{}", place(index), std::max<std::size_t>(error.byte, 1)), "",
                          "not JSON: " + reason_of(error));
    } catch (const json::out_of_range&) {
        throw ConfigError(place(index), "", "holds a number that no double holds");
    }
    if (!value.is_object()) {
        throw ConfigError(place(index), "", fmt::format("expects a JSON object, got {}", value.type_name()));
    }
    return value;
}

// Of an object that was parsed: what is no string, bracket, comma or blank belongs to a value.
std::string_view JsonLines::written(std::size_t index, std::string_view key) const {
    const std::string_view text = text_of(index);
    std::string_view found;
    bool wanted = false;
    std::size_t depth = 0, value = 0;  // where the open object's value begins; 0: a key is open
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        const bool ends = depth == 1 && (c == ',' || c == '}');
        if (ends && wanted && value != 0) {
            found = text.substr(value, at - value);
            found = found.substr(0, found.find_last_not_of(kBlank) + 1);
        }
        if (ends) value = 0;
        if (depth == 1 && c == ':') value = text.find_first_not_of(kBlank, at + 1);
        if (c == '"') {
            const std::size_t end = end_of_string(text, at);
            if (depth == 1 && value == 0) wanted = json::parse(text.substr(at, end - at)) == key;
            at = end;
            continue;
        }
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        ++at;
    }
    return found;
}

std::string_view JsonLines::text_of(std::size_t index) const {
    const Line& line = lines_.at(index);
    return text_.substr(line.start, line.size);
}

std::string JsonLines::place(std::size_t index) const {
    return fmt::format("{}:{}", file_, lines_.at(index).number);
}

}  // namespace tandem::trainer
