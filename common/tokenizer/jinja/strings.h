// Python's ways with strings: what counts as white space, escapes of literals, characters instead of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tokenizer::jinja {

bool is_space(char32_t code_point);  // str.isspace
// Strips white space, or the characters of `of`.
std::string_view strip_left(std::string_view text, std::optional<std::string_view> of = std::nullopt);
std::string_view strip_right(std::string_view text, std::optional<std::string_view> of = std::nullopt);

std::string unescape(std::string_view literal);  // "\\n" becomes a newline; an unknown escape stays
std::vector<std::string_view> characters(std::string_view text);
std::size_t count_characters(std::string_view text);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);
// str.split(separator, most): without a separator at runs of white space, no empty parts.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               std::int64_t most);
// What looking for a text of so many bytes may take: each place may fit but for its last byte.
inline std::uint64_t search_work(std::string_view text, std::size_t wanted_bytes) {
    constexpr std::uint64_t kAtOnce = 8;
    return text.size() + text.size() * (wanted_bytes / kAtOnce);
}
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

}  // namespace tandem::tokenizer::jinja
