#include "common/tokenizer/jinja/strings.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

bool stripped(char32_t c, const std::optional<std::string_view>& of) {
    if (!of) return is_space(c);
    for (std::size_t at = 0; at < of->size();) {
        if (next_code_point(*of, at) == c) return true;
    }
    return false;
}

int octal_digits(std::string_view text) {
    int count = 0;
    while (count < 3 && static_cast<std::size_t>(count) < text.size() &&
           text[static_cast<std::size_t>(count)] >= '0' && text[static_cast<std::size_t>(count)] <= '7') {
        ++count;
    }
    return count;
}

// The code point of `digits` digits; nullopt: they are not, or there is no such character.
std::optional<char32_t> number(std::string_view text, std::size_t digits, int base) {
    if (text.size() < digits) return std::nullopt;
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, base);
    if (error != std::errc() || end != text.data() + digits) return std::nullopt;
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return std::nullopt;
    return static_cast<char32_t>(value);
}

std::string cased(std::string_view text,
                  icu::UnicodeString& (icu::UnicodeString::*change)(const icu::Locale&)) {
    icu::UnicodeString wide =
        icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
    std::string out;
    (wide.*change)(icu::Locale::getRoot()).toUTF8String(out);
    return out;
}

}  // namespace

bool is_space(char32_t c) {
    return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::string_view strip_left(std::string_view text, std::optional<std::string_view> of) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        if (!stripped(next_code_point(text, at), of)) return text.substr(begin);
    }
    return {};
}

std::string_view strip_right(std::string_view text, std::optional<std::string_view> of) {
    for (std::size_t at = text.size(); at > 0;) {
        const std::size_t end = at;
        if (!stripped(previous_code_point(text, at), of)) return text.substr(0, end);
    }
    return {};
}

std::string unescape(std::string_view in) {
    std::string out;
    for (std::size_t i = 0; i < in.size(); ++i) {
        if (in[i] != '\\' || i + 1 >= in.size()) {
            out += in[i];
            continue;
        }
        const char c = in[++i];
        constexpr std::string_view kFrom = "nrtabfv\\'\"", kTo = "\n\r\t\a\b\f\v\\'\"";
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        const auto octal = static_cast<std::size_t>(octal_digits(in.substr(i)));
        if (const std::size_t found = kFrom.find(c); found != std::string_view::npos) {
            out += kTo[found];
        } else if (const auto code = digits > 0 ? number(in.substr(i + 1), digits, 16) : std::nullopt) {
            append_utf8(out, *code);
            i += digits;
        } else if (octal > 0) {
            append_utf8(out, *number(in.substr(i), octal, 8));
            i += octal - 1;
        } else if (c != '\n') {
            out += '\\';
            out += c;
        }
    }
    return out;
}

std::vector<std::string_view> characters(std::string_view text) {
    std::vector<std::string_view> out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        next_code_point(text, at);
        out.push_back(text.substr(begin, at - begin));
    }
    return out;
}

std::size_t count_characters(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t most) {
    std::string out;
    if (from.empty()) {  // between all characters
        for (const std::string_view c : characters(text)) {
            if (most-- != 0) out += to;
            out += c;
        }
        if (most != 0) out += to;
        return out;
    }
    std::size_t at = 0;
    for (std::size_t found = text.find(from); found != std::string_view::npos && most != 0;
         found = text.find(from, at), --most) {
        out.append(text, at, found - at).append(to);
        at = found + from.size();
    }
    return out.append(text, at);
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               std::int64_t most) {
    std::vector<std::string> out;
    if (!separator) {
        for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
            std::size_t end = 0;
            for (std::size_t at = 0; at < text.size() && !is_space(next_code_point(text, at)); end = at) {
            }
            if (most-- == 0) {
                out.emplace_back(text);
                break;
            }
            out.emplace_back(text.substr(0, end));
            text.remove_prefix(end);
        }
        return out;
    }
    for (; most != 0; --most) {
        const std::size_t found = text.find(*separator);
        if (found == std::string_view::npos) break;
        out.emplace_back(text.substr(0, found));
        text.remove_prefix(found + separator->size());
    }
    out.emplace_back(text);
    return out;
}

std::string lower(std::string_view text) {
    return cased(text, static_cast<icu::UnicodeString& (icu::UnicodeString::*)(const icu::Locale&)>(
                           &icu::UnicodeString::toLower));
}

std::string upper(std::string_view text) {
    return cased(text, static_cast<icu::UnicodeString& (icu::UnicodeString::*)(const icu::Locale&)>(
                           &icu::UnicodeString::toUpper));
}

std::string capitalize(std::string_view text) {
    std::size_t at = 0;
    if (text.empty()) return "";
    next_code_point(text, at);
    return upper(text.substr(0, at)) + lower(text.substr(at));
}

// Each run of letters: the first upper, the others lower.
std::string title(std::string_view text) {
    std::string out;
    bool inside = false;
    for (const std::string_view c : characters(text)) {
        std::size_t at = 0;
        const bool letter = u_isalpha(static_cast<UChar32>(next_code_point(c, at))) != 0;
        out += !letter ? std::string(c) : inside ? lower(c) : upper(c);
        inside = letter;
    }
    return out;
}

}  // namespace tandem::tokenizer::jinja
