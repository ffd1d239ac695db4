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
    const Line& line = lines_.at(index);
    json value;
    try {
        value = json::parse(text_.substr(line.start, line.size));
    } catch (const json::parse_error& error) {
        throw ConfigError(fmt::format("{}:{}", place(index), std::max<std::size_t>(error.byte, 1)), "",
                          "not JSON: " + reason_of(error));
    }
    if (!value.is_object()) {
        throw ConfigError(place(index), "", fmt::format("expects a JSON object, got {}", value.type_name()));
    }
    return value;
}

std::string JsonLines::place(std::size_t index) const {
    return fmt::format("{}:{}", file_, lines_.at(index).number);
}

}  // namespace tandem::trainer
