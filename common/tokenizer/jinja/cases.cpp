// Letters, digits and their cases, as Python's str sees them.
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/strings.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

enum class To : std::uint8_t { lower, upper, fold, title };

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string changed_ascii(std::string_view text, To to) {
    const bool up = to == To::upper || to == To::title;
    const char first = up ? 'a' : 'A', last = up ? 'z' : 'Z';
    std::string out(text);
    for (char& c : out) c = c >= first && c <= last ? static_cast<char>(c ^ 0x20) : c;
    return out;
}

// For a title a single character: "ǆ" becomes "ǅ", "ß" "Ss".
std::string change_piece(Runtime& runtime, std::string_view piece, To to) {
    constexpr std::size_t kOfCall = 8;
    runtime.case_work(piece.size() + kOfCall);
    if (is_ascii(piece)) return changed_ascii(piece, to);
    auto text =
        icu::UnicodeString::fromUTF8(icu::StringPiece(piece.data(), static_cast<std::int32_t>(piece.size())));
    switch (to) {
        case To::lower:
            text.toLower(icu::Locale::getRoot());
            break;
        case To::upper:
            text.toUpper(icu::Locale::getRoot());
            break;
        case To::fold:
            text.foldCase(U_FOLD_CASE_DEFAULT);
            break;
        case To::title:
            text.toTitle(
                nullptr, icu::Locale::getRoot(),
                U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_LOWERCASE | U_TITLECASE_NO_BREAK_ADJUSTMENT);
    }
    std::string out;
    text.toUTF8String(out);
    return out;
}

// Where a piece ends that can be changed by itself. Σ is the only letter that looks at its neighbours, and not
// past a blank: it becomes ς at a word's end.
std::size_t piece_end(std::string_view text, std::size_t begin, bool has_sigma) {
    constexpr std::size_t kPiece = std::size_t{1} << 14;
    std::size_t end = std::min(begin + kPiece, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    if (has_sigma) end = std::min(text.find(' ', end), text.size());
    return end;
}

std::string change(Runtime& runtime, std::string_view text, To to) {
    const bool has_sigma = to == To::lower && text.find("Σ") != std::string_view::npos;
    Text out(runtime);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = piece_end(text, begin, has_sigma);
        if (has_sigma) runtime.spend(4 * (end - begin));  // of UTF-16, twice
        out += change_piece(runtime, text.substr(begin, end - begin), to);
        begin = end;
    }
    return out.take();
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
bool every(Runtime& runtime, std::string_view text, const Each& each) {
    constexpr std::size_t kPiece = std::size_t{1} << 12;
    std::size_t charged = 0;
    for (std::size_t at = 0; at < text.size();) {
        if (at >= charged) {
            const std::size_t piece = std::min(kPiece, text.size() - charged);
            runtime.case_work(piece);
            charged += piece;
        }
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

std::string lower(Runtime& runtime, std::string_view text) {
    return change(runtime, text, To::lower);
}
std::string upper(Runtime& runtime, std::string_view text) {
    return change(runtime, text, To::upper);
}
std::string casefold(Runtime& runtime, std::string_view text) {
    return change(runtime, text, To::fold);
}

// The text is lowered as a whole, so that each character sees its neighbours.
std::string capitalize(Runtime& runtime, std::string_view text) {
    if (text.empty()) return "";
    const std::string_view first = text.substr(0, next_character(text, 0));
    Text out(runtime);
    out += change_piece(runtime, first, To::title);
    const std::string small = lower(runtime, text);
    out += std::string_view(small).substr(change_piece(runtime, first, To::lower).size());
    return out.take();
}

std::string swapcase(Runtime& runtime, std::string_view text) {
    Text out(runtime);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(text, at);
        const std::string_view one = text.substr(begin, at - begin);
        out += is_capital(c) ? change_piece(runtime, one, To::lower)
               : is_small(c) ? change_piece(runtime, one, To::upper)
                             : std::string(one);
    }
    return out.take();
}

// Each run of cased letters: the first in title case, the others lower.
std::string title(Runtime& runtime, std::string_view text) {
    Text out(runtime);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        bool cased = is_cased(next_code_point(text, at));
        const std::string_view first = text.substr(begin, at - begin);
        out += change_piece(runtime, first, To::title);
        std::size_t end = at;
        while (cased && end < text.size()) {
            std::size_t behind = end;
            cased = is_cased(next_code_point(text, behind));
            end = behind;
        }
        const std::string small = lower(runtime, text.substr(begin, end - begin));
        out += std::string_view(small).substr(change_piece(runtime, first, To::lower).size());
        at = end;
    }
    return out.take();
}

bool is_lower(Runtime& runtime, std::string_view text) {
    bool any = false;
    return every(runtime, text,
                 [&](char32_t c) {
                     any = any || is_small(c);
                     return !is_capital(c) && !is_title_letter(c);
                 }) &&
           any;
}

bool is_upper(Runtime& runtime, std::string_view text) {
    bool any = false;
    return every(runtime, text,
                 [&](char32_t c) {
                     any = any || is_capital(c);
                     return !is_small(c) && !is_title_letter(c);
                 }) &&
           any;
}

bool is_title(Runtime& runtime, std::string_view text) {
    bool any = false, inside = false;
    const bool fits = every(runtime, text, [&](char32_t c) {
        const bool big = is_capital(c) || is_title_letter(c), small = is_small(c);
        if ((big && inside) || (small && !inside)) return false;
        inside = big || small;
        any = any || inside;
        return true;
    });
    return fits && any;
}

bool is_all(Runtime& runtime, std::string_view text, CharacterClass wanted) {
    return !text.empty() && every(runtime, text, [&](char32_t c) { return is_of(c, wanted); });
}

bool is_word_character(char32_t c) {
    return c == '_' || is_of(c, CharacterClass::alphanumeric);
}

bool is_identifier(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const bool first = at == 0;
        const char32_t c = next_code_point(text, at);
        const auto code = static_cast<UChar32>(c);
        const bool start = c == '_' || u_hasBinaryProperty(code, UCHAR_XID_START) != 0;
        if (!start && (first || u_hasBinaryProperty(code, UCHAR_XID_CONTINUE) == 0)) return false;
    }
    return !text.empty();
}

}  // namespace tandem::tokenizer::jinja
