// JSON that a stranger wrote. Stricter than the grammar: a key given twice is refused instead of taken from
// one of the two places, and so is a nesting that recursion over the value could not stand.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem::model {

// Throws ConfigError naming `file`.
nlohmann::json parse_json(std::string_view text, const std::string& file);

// The bytes of a regular file. Throws ConfigError: cannot be opened, is no file, is larger than `most_bytes`.
std::string read_text_file(const std::string& file, std::size_t most_bytes = std::size_t{64} << 20);

}  // namespace tandem::model
