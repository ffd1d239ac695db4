#include "common/tokenizer/jinja/strings.h"

#include <fmt/core.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>

#include "common/error.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

std::size_t octal_digits(std::string_view text) {
    std::size_t count = 0;
    while (count < 3 && count < text.size() && text[count] >= '0' && text[count] <= '7') ++count;
    return count;
}

// The code point of `digits` digits. Throws Error: they are not, or there is no such character.
char32_t code_of(std::string_view text, std::size_t digits, int base) {
    std::uint32_t value = 0;
    const char* const wanted_end = text.data() + digits;
    if (text.size() >= digits) {
        const auto [end, error] = std::from_chars(text.data(), wanted_end, value, base);
        const bool valid = error == std::errc() && end == wanted_end && value <= 0x10FFFF;
        if (valid && (value < 0xD800 || value >= 0xE000)) return static_cast<char32_t>(value);
    }
    throw Error("a string has an escape that is no character");
}

// "{BULLET}…": the character, and behind the brace.
char32_t named(std::string_view text, std::size_t& length) {
    const std::size_t close = text.find('}');
    if (!text.starts_with('{') || close == std::string_view::npos) {
        throw Error("a string has an escape that is no character");
    }
    const std::string name(text.substr(1, close - 1));
    length = close + 1;
    for (const UCharNameChoice kind : {U_EXTENDED_CHAR_NAME, U_CHAR_NAME_ALIAS}) {
        UErrorCode error = U_ZERO_ERROR;
        const UChar32 found = u_charFromName(kind, name.c_str(), &error);
        if (U_SUCCESS(error) && !name.starts_with('<')) return static_cast<char32_t>(found);
    }
    throw Error("a string names a character that is not known: " + shown(name));
}

// What a backslash before something unknown leaves: both; Python spells what is not ASCII.
void append_unknown(std::string& out, std::string_view text, std::size_t& at) {
    const auto c = static_cast<std::uint32_t>(next_code_point(text, at));
    out += '\\';
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else {
        out += c < 0x100     ? fmt::format("x{:02x}", c)
               : c < 0x10000 ? fmt::format("u{:04x}", c)
                             : fmt::format("U{:08x}", c);
    }
}

bool ends_line(char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) {
    return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::string_view strip_left(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        if (!is_space(next_code_point(text, at))) return text.substr(begin);
    }
    return {};
}

std::string_view strip_right(std::string_view text) {
    for (std::size_t at = text.size(); at > 0;) {
        const std::size_t end = at;
        if (!is_space(previous_code_point(text, at))) return text.substr(0, end);
    }
    return {};
}

std::string unescape(std::string_view in, const ThreadClock& clock) {
    std::string out;
    for (std::size_t i = 0; i < in.size();) {
        const char first = in[i++];
        if (first != '\\' || i >= in.size()) {
            out += first;
            continue;
        }
        const char c = in[i];
        constexpr std::string_view kFrom = "nrtabfv\\'\"", kTo = "\n\r\t\a\b\f\v\\'\"";
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        const std::size_t octal = octal_digits(in.substr(i));
        if (const std::size_t found = kFrom.find(c); found != std::string_view::npos) {
            out += kTo[found];
            ++i;
        } else if (digits > 0) {
            append_utf8(out, code_of(in.substr(i + 1), digits, 16));
            i += 1 + digits;
        } else if (octal > 0) {
            append_utf8(out, code_of(in.substr(i), octal, 8));
            i += octal;
        } else if (c == 'N') {
            std::size_t length = 0;
            clock.look();  // ICU walks through all names
            append_utf8(out, named(in.substr(i + 1), length));
            i += 1 + length;
        } else if (c == '\n') {
            ++i;
        } else {
            append_unknown(out, in, i);
        }
    }
    return out;
}

std::string shown(std::string_view text, std::size_t most) {
    if (text.size() <= most) return std::string(text);
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
    return std::string(text.substr(0, most)) + "…";
}

std::size_t next_character(std::string_view text, std::size_t at) {
    next_code_point(text, at);
    return at;
}

std::size_t count_characters(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t bytes_of(std::string_view text, std::size_t count) {
    std::size_t at = 0;
    for (; count > 0 && at < text.size(); --count) at = next_character(text, at);
    return at;
}

std::string to_ascii_digits(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const auto c = static_cast<UChar32>(next_code_point(text, at));
        const std::int32_t digit = c < 0x80 ? -1 : u_charDigitValue(c);
        if (digit >= 0) {
            out += static_cast<char>('0' + digit);
        } else {
            out += text.substr(begin, at - begin);
        }
    }
    return out;
}

void split_lines(std::string_view text, bool keep_ends, const Part& part) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = at;
        if (!ends_line(next_code_point(text, at))) continue;
        if (text[end] == '\r' && at < text.size() && text[at] == '\n') ++at;
        part(text.substr(begin, (keep_ends ? at : end) - begin));
        begin = at;
    }
    if (begin < text.size()) part(text.substr(begin));
}

}  // namespace tandem::tokenizer::jinja
