#include "common/printable.h"

#include <fmt/core.h>

#include <cstddef>

namespace tandem {
namespace {

// Length of the UTF-8 character at the beginning, and which it is; 0: there is none.
struct Character {
    std::size_t bytes = 0;
    char32_t code = 0;
};
Character character_at(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    if (first < 0x80) return {1, first};
    const std::size_t bytes = first >= 0xF5   ? 0
                              : first >= 0xF0 ? 4
                              : first >= 0xE0 ? 3
                              : first >= 0xC2 ? 2
                                              : 0;
    if (bytes == 0 || bytes > text.size()) return {};
    char32_t code = first & (0x7Fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xC0u) != 0x80) return {};
        code = (code << 6) | (byte(i) & 0x3Fu);
    }
    const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
    const bool none = too_long || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF);
    return none ? Character{} : Character{bytes, code};
}

bool turns_direction(char32_t code) {
    return code == 0x200E || code == 0x200F || code == 0x061C || (code >= 0x202A && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

bool breaks_lines(char32_t code) {
    return code == 0x2028 || code == 0x2029;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto [bytes, code] = character_at(text);
        if (bytes == 0) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
        } else if (code == '\n') {
            out += text.size() > 1 ? "\n  " : "\n";
        } else if ((code < 0x20 && code != '\t') || code == 0x7F) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
        } else if ((code >= 0x80 && code < 0xA0) || turns_direction(code) || breaks_lines(code)) {
            out += fmt::format("\\u{{{:04x}}}", static_cast<unsigned>(code));
        } else {
            out += text.substr(0, bytes);
        }
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return out;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = character_at(text).bytes;
        if (bytes == 0) return false;
        text.remove_prefix(bytes);
    }
    return true;
}

}  // namespace tandem
