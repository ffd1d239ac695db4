#include "common/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/file_kind.h"

namespace tandem {
namespace {

// What a text takes once it is parsed.
struct JsonExtent {
    int depth = 0;           // of brackets and braces outside strings
    std::size_t values = 0;  // at least as many as it has
};
JsonExtent extent_of(std::string_view text) {
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
std::string place_of(std::string_view text, std::size_t byte) {
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
std::string reason_of(const nlohmann::json::parse_error& error) {
    const std::string text = error.what();
    const std::string marker = " - ";
    const std::size_t dash = text.find(marker);
    const std::size_t begin = dash == std::string::npos ? 0 : dash + marker.size();
    return text.substr(begin, text.find("; last read", begin) - begin);
}

// The library quotes the number, "… parsing '1e999'", and does not say where.
std::string too_large_number(std::string_view text, const std::string& what) {
    const std::size_t quote = what.find('\'');
    const std::string number =
        quote == std::string::npos ? "" : what.substr(quote + 1, what.rfind('\'') - quote - 1);
    return fmt::format("is not valid JSON at {}: a number that no double holds",
                       place_of(text, text.find(number) + 1));
}

constexpr std::size_t kDeepestOfAFile = 64;

// Follows the parser's events. keys_: of every object or array that is open; an array's stays empty.
class StrictWatch {
  public:
    explicit StrictWatch(const std::string& file) : file_(file) {}
    void see(nlohmann::json::parse_event_t event, const nlohmann::json& value) {
        using Event = nlohmann::json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            if (keys_.size() == kDeepestOfAFile) {
                throw ConfigError(file_, "", fmt::format("nested more than {} deep", kDeepestOfAFile));
            }
            keys_.emplace_back();
        } else if (event == Event::object_end || event == Event::array_end) {
            keys_.pop_back();
        } else if (event == Event::key && !keys_.back().insert(value.get<std::string>()).second) {
            throw ConfigError(file_, value.get<std::string>(), "is there twice");
        }
    }

  private:
    const std::string& file_;
    std::vector<std::set<std::string>> keys_;
};

template <class Json>
Json parsed(std::string_view text, const JsonLimits& limits) {
    const JsonExtent extent = extent_of(text);
    enforce(extent.depth <= limits.depth, "is nested deeper than {} levels", limits.depth);
    enforce(extent.values <= limits.values, "holds more than {} values", limits.values);
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const nlohmann::json::parse_error& error) {
        throw BadInput(
            fmt::format("is not valid JSON at {}: {}", place_of(text, error.byte), reason_of(error)));
    } catch (const nlohmann::json::out_of_range& error) {
        throw BadInput(too_large_number(text, error.what()));
    }
}

}  // namespace

nlohmann::json parse_json_text(std::string_view text, const JsonLimits& limits) {
    return parsed<nlohmann::json>(text, limits);
}

nlohmann::ordered_json parse_ordered_json_text(std::string_view text, const JsonLimits& limits) {
    return parsed<nlohmann::ordered_json>(text, limits);
}

nlohmann::json json_text_or_nothing(std::string_view text, const JsonLimits& limits) noexcept {
    try {
        return parsed<nlohmann::json>(text, limits);
    } catch (const std::exception&) {
        return nlohmann::json(nlohmann::json::value_t::discarded);
    }
}

std::string text_of_json(const nlohmann::json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of_json(const nlohmann::ordered_json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::int64_t integer_of(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
    const bool fits = value.is_number_unsigned()
                          ? most >= 0 && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                          : value.is_number_integer() && value.get<std::int64_t>() <= most;
    if (fits && value.get<std::int64_t>() >= least) return value.get<std::int64_t>();
    constexpr std::size_t kShown = 40;
    throw BadInput(fmt::format(
        "{} is no whole number from {} to {}",
        value.is_primitive()
            ? value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, kShown)
            : value.type_name(),
        least, most));
}

std::vector<std::int32_t> token_ids_of(const nlohmann::json& list) {
    if (!list.is_array()) throw BadInput(fmt::format("token ids are a list, not {}", list.type_name()));
    std::vector<std::int32_t> ids;
    ids.reserve(list.size());
    for (const nlohmann::json& id : list)
        ids.push_back(static_cast<std::int32_t>(integer_of(id, 0, std::numeric_limits<std::int32_t>::max())));
    return ids;
}

nlohmann::json parse_json_file(std::string_view text, const std::string& file, RepeatedKeys repeated) {
    using nlohmann::json;
    StrictWatch watch(file);
    const json::parser_callback_t strict = [&](int, json::parse_event_t event, json& value) {
        watch.see(event, value);
        return true;
    };
    try {
        return json::parse(text.begin(), text.end(), repeated == RepeatedKeys::refused ? strict : nullptr);
    } catch (const json::parse_error& error) {
        throw ConfigError(file, "", not_json(text, error.what(), error.byte > text.size()));
    } catch (const json::exception& error) {
        throw ConfigError(file, "", not_json(text, error.what(), false));
    }
}

}  // namespace tandem
