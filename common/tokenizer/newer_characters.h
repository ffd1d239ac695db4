// Characters that the reference knows and Debian 12's PCRE2 (Unicode 14) and ICU (Unicode 15) do not. A
// regular expression is matched against a copy of the text in which a character of the same general category
// and UTF-8 length stands in for each, so that offsets stay what they are.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem::tokenizer {

struct NewerCharacters {
    char32_t first, last, stand_in;
};
std::span<const NewerCharacters> newer_characters();  // ascending

char32_t stand_in_for(char32_t code_point);  // the code point itself where it is not newer
// `text`, or, where it has newer characters, `storage` with the stand-ins. Same length.
std::string_view with_stand_ins(std::string_view text, std::string& storage);

}  // namespace tandem::tokenizer
