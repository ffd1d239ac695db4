// GPT-2's alphabet: every byte is written as a printable character, so that BPE works on text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::tokenizer {

void append_byte_characters(std::string& out, std::string_view bytes);
// The bytes that `text` stands for; nullopt if a character is not of the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace tandem::tokenizer
