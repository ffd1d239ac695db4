// Letters, digits and their cases, as Python's str sees them.
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "common/tokenizer/jinja/strings.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

icu::UnicodeString wide(std::string_view text) {
    return icu::UnicodeString::fromUTF8(
        icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
}

std::string narrow(const icu::UnicodeString& text) {
    std::string out;
    text.toUTF8String(out);
    return out;
}

// A single character in title case: "ǆ" becomes "ǅ", "ß" "Ss".
std::string title_of(std::string_view character) {
    icu::UnicodeString text = wide(character);
    return narrow(text.toTitle(nullptr, icu::Locale::getRoot(),
                               U_TITLECASE_NO_LOWERCASE | U_TITLECASE_NO_BREAK_ADJUSTMENT));
}

bool is_cased(char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED) != 0;
}
bool is_small(char32_t c) {
    return u_isULowercase(static_cast<UChar32>(c)) != 0;
}
bool is_capital(char32_t c) {
    return u_isUUppercase(static_cast<UChar32>(c)) != 0;
}
bool is_title_letter(char32_t c) {
    return u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER;
}

template <typename Each>
bool every(std::string_view text, const Each& each) {
    for (std::size_t at = 0; at < text.size();) {
        if (!each(next_code_point(text, at))) return false;
    }
    return true;
}

bool is_of(char32_t code, CharacterClass wanted) {
    const auto c = static_cast<UChar32>(code);
    const bool alphabetic = (U_GET_GC_MASK(c) & U_GC_L_MASK) != 0;
    const auto number = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
    switch (wanted) {
        case CharacterClass::alphabetic:
            return alphabetic;
        case CharacterClass::decimal:
            return number == U_NT_DECIMAL;
        case CharacterClass::digit:
            return number == U_NT_DECIMAL || number == U_NT_DIGIT;
        case CharacterClass::numeric:
            return number != U_NT_NONE;
        default:
            return alphabetic || number != U_NT_NONE;
    }
}

}  // namespace

std::string lower(std::string_view text) {
    return narrow(wide(text).toLower(icu::Locale::getRoot()));
}
std::string upper(std::string_view text) {
    return narrow(wide(text).toUpper(icu::Locale::getRoot()));
}
std::string casefold(std::string_view text) {
    return narrow(wide(text).foldCase(U_FOLD_CASE_DEFAULT));
}

// Σ at a word's end becomes ς: the text is lowered as a whole, so that each character sees its neighbours.
std::string capitalize(std::string_view text) {
    if (text.empty()) return "";
    const std::string_view first = text.substr(0, next_character(text, 0));
    return title_of(first) + lower(text).substr(lower(first).size());
}

std::string swapcase(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(text, at);
        const std::string_view one = text.substr(begin, at - begin);
        out += is_capital(c) ? lower(one) : is_small(c) ? upper(one) : std::string(one);
    }
    return out;
}

// Each run of cased letters: the first in title case, the others lower.
std::string title(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        bool cased = is_cased(next_code_point(text, at));
        const std::string_view first = text.substr(begin, at - begin);
        out += title_of(first);
        std::size_t end = at;
        while (cased && end < text.size()) {
            std::size_t behind = end;
            cased = is_cased(next_code_point(text, behind));
            end = behind;
        }
        const std::string_view run = text.substr(begin, end - begin);
        out += lower(run).substr(lower(first).size());
        at = end;
    }
    return out;
}

bool is_lower(std::string_view text) {
    bool any = false;
    return every(text,
                 [&](char32_t c) {
                     any = any || is_small(c);
                     return !is_capital(c) && !is_title_letter(c);
                 }) &&
           any;
}

bool is_upper(std::string_view text) {
    bool any = false;
    return every(text,
                 [&](char32_t c) {
                     any = any || is_capital(c);
                     return !is_small(c) && !is_title_letter(c);
                 }) &&
           any;
}

bool is_title(std::string_view text) {
    bool any = false, inside = false;
    const bool fits = every(text, [&](char32_t c) {
        const bool big = is_capital(c) || is_title_letter(c), small = is_small(c);
        if ((big && inside) || (small && !inside)) return false;
        inside = big || small;
        any = any || inside;
        return true;
    });
    return fits && any;
}

bool is_all(std::string_view text, CharacterClass wanted) {
    return !text.empty() && every(text, [&](char32_t c) { return is_of(c, wanted); });
}

bool is_word_character(char32_t c) {
    return c == '_' || is_of(c, CharacterClass::alphanumeric);
}

bool is_identifier(std::string_view text) {
    bool first = true;
    const bool fits = every(text, [&](char32_t c) {
        const auto code = static_cast<UChar32>(c);
        const bool start = c == '_' || u_hasBinaryProperty(code, UCHAR_XID_START) != 0;
        const bool good = start || (!first && u_hasBinaryProperty(code, UCHAR_XID_CONTINUE) != 0);
        first = false;
        return good;
    });
    return fits && !text.empty();
}

}  // namespace tandem::tokenizer::jinja
