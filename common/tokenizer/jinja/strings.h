// Python's ways with strings: what counts as white space, escapes of literals, characters instead of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/tokenizer/jinja/thread_clock.h"

namespace tandem::tokenizer::jinja {

class Runtime;

bool is_space(char32_t code_point);  // str.isspace
// Without white space at that end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

// The inside of a literal: "\\n" becomes a newline, "\\N{BULLET}" a bullet; an unknown escape stays. Throws
// Error: an escape that is not finished, or that is no character; more than the clock gives.
std::string unescape(std::string_view literal, const ThreadClock& clock);
// For an error's text: its beginning, where it is longer than `most` bytes.
std::string shown(std::string_view text, std::size_t most = 200);
std::size_t count_characters(std::string_view text);
std::size_t next_character(std::string_view text, std::size_t at);  // where the one behind begins
// The first `count` characters, in bytes; all of them where there are fewer.
std::size_t bytes_of(std::string_view text, std::size_t count);
std::string to_ascii_digits(std::string_view text);  // decimal digits of other scripts too

// What is done with each part of a text.
using Part = std::function<void(std::string_view)>;
void split_lines(std::string_view text, bool keep_ends, const Part& part);  // str.splitlines

// cases.cpp; those with a runtime charge as they go
std::string lower(Runtime& runtime, std::string_view text);
std::string upper(Runtime& runtime, std::string_view text);
std::string casefold(Runtime& runtime, std::string_view text);
std::string swapcase(Runtime& runtime, std::string_view text);
std::string capitalize(Runtime& runtime, std::string_view text);
std::string title(Runtime& runtime, std::string_view text);
bool is_lower(Runtime& runtime, std::string_view text);
bool is_upper(Runtime& runtime, std::string_view text);
bool is_title(Runtime& runtime, std::string_view text);
// Whether there is a character and each is alphabetic, a decimal digit, any digit, any number.
enum class CharacterClass : std::uint8_t { alphabetic, decimal, digit, numeric, alphanumeric };
bool is_all(Runtime& runtime, std::string_view text, CharacterClass wanted);
bool is_word_character(char32_t code_point);  // \w of Python's re
bool is_identifier(std::string_view text);

}  // namespace tandem::tokenizer::jinja
