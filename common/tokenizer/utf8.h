// UTF-8 and the properties of characters, as Hugging Face `tokenizers` sees them.
#pragma once

#include <string>
#include <string_view>

namespace tandem::tokenizer {

// The code point at text[at]; moves `at` behind it. `text` is valid UTF-8 and at < text.size().
char32_t next_code_point(std::string_view text, std::size_t& at);
// The code point that ends at text[at - 1]; moves `at` to its start. `text` is valid UTF-8 and at > 0.
char32_t previous_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t code_point);

// Every maximal ill-formed piece becomes one U+FFFD: what Python's errors="replace" and Rust's
// from_utf8_lossy do.
std::string to_valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);

bool is_white_space(char32_t code_point);  // White_Space
bool is_numeric(char32_t code_point);      // general categories Nd, Nl, No
bool is_punctuation(char32_t code_point);  // ASCII punctuation and categories P*, as of Unicode 8
bool is_mark(char32_t code_point);         // categories M*, as of Unicode 9
bool is_word(char32_t code_point);         // \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control

}  // namespace tandem::tokenizer
