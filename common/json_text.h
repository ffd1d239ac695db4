// JSON that a peer or a stranger wrote, parsed and written in this one place (lint.one_place): the library copies, prints and destroys
// by recursion and takes some 25 bytes for one of text, so depth and values are limited before it is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct JsonLimits {
    int depth = 64;                             // of brackets and braces
    std::size_t values = std::size_t{1} << 20;  // each takes 16 bytes and more
};

// For a text of this process, of ranks of its job or of the user's, as many values as it has.
inline JsonLimits any_values(std::string_view text) {
    return {.values = text.size() + 1};
}

// Throws BadInput: "is nested deeper than 64 levels", "holds more than 1048576 values", "is not valid JSON at line 3, column 17:
// …"; its caller says what is.
nlohmann::json parse_json_text(std::string_view text, const JsonLimits& limits = {});
// Objects' keys in the order of the text.
nlohmann::ordered_json parse_ordered_json_text(std::string_view text, const JsonLimits& limits = {});
// The same; a discarded value (is_discarded) where it would throw.
nlohmann::json json_text_or_nothing(std::string_view text, const JsonLimits& limits = {}) noexcept;

// The text of JSON that may hold what is no UTF-8 (a path, a name, another program's words): such bytes become U+FFFD, where the
// library throws. indent < 0: on one line.
std::string text_of_json(const nlohmann::json& value, int indent = -1);
std::string text_of_json(const nlohmann::ordered_json& value, int indent = -1);

// Numbers of a text that somebody else wrote: the library's get<int>() cuts off what follows a point, and is undefined for what
// does not fit. Throws BadInput: "5.5 is no whole number from 0 to 2147483647".
std::int64_t integer_of(const nlohmann::json& value, std::int64_t least = 0,
                        std::int64_t most = std::numeric_limits<std::int64_t>::max());
std::vector<std::int32_t> token_ids_of(const nlohmann::json& list);

// Of a file that a stranger wrote. refused: also a key given twice, instead of taken from one of the two places, and a nesting
// that recursion over the value could not stand. Throws ConfigError naming `file`, which says what it is instead where it is no
// JSON at all (file_kind.h).
enum class RepeatedKeys { refused, taken };
nlohmann::json parse_json_file(std::string_view text, const std::string& file,
                               RepeatedKeys repeated = RepeatedKeys::refused);

}  // namespace tandem
