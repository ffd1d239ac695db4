// Python's ways with strings: what counts as white space, escapes of literals, characters instead of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::tokenizer::jinja {

bool is_space(char32_t code_point);  // str.isspace
// Strips white space, or the characters of `of`.
std::string_view strip_left(std::string_view text, std::optional<std::string_view> of = std::nullopt);
std::string_view strip_right(std::string_view text, std::optional<std::string_view> of = std::nullopt);

// The inside of a literal: "\\n" becomes a newline, "\\N{BULLET}" a bullet; an unknown escape stays. Throws
// Error: an escape that is not finished, or that is no character.
std::string unescape(std::string_view literal);
std::size_t count_characters(std::string_view text);
std::size_t next_character(std::string_view text, std::size_t at);  // where the one behind begins
// The first `count` characters, in bytes; all of them where there are fewer.
std::size_t bytes_of(std::string_view text, std::size_t count);
std::string to_ascii_digits(std::string_view text);  // decimal digits of other scripts too

// What is done with each part of a text.
using Part = std::function<void(std::string_view)>;
// str.split; right: str.rsplit, whose parts come from the last to the first. Without a separator at runs of
// white space, no empty parts. most: cuts; negative: any number.
void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t most,
           const Part& part);
void split_right(std::string_view text, std::optional<std::string_view> separator, std::int64_t most,
                 const Part& part);
void split_lines(std::string_view text, bool keep_ends, const Part& part);
// What looking for a text of so many bytes may take: each place may fit but for its last byte.
inline std::uint64_t search_work(std::string_view text, std::size_t wanted_bytes) {
    constexpr std::uint64_t kAtOnce = 8;
    return text.size() + text.size() * (wanted_bytes / kAtOnce);
}

// cases.cpp
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string casefold(std::string_view text);
std::string swapcase(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);
bool is_title(std::string_view text);
// Whether there is a character and each is alphabetic, a decimal digit, any digit, any number.
enum class CharacterClass : std::uint8_t { alphabetic, decimal, digit, numeric, alphanumeric };
bool is_all(std::string_view text, CharacterClass wanted);
bool is_word_character(char32_t code_point);  // \w of Python's re
bool is_identifier(std::string_view text);

}  // namespace tandem::tokenizer::jinja
