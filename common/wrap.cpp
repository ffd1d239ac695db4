#include "common/wrap.h"

#include <algorithm>

namespace tandem {

std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
    const std::string next_line = "\n" + std::string(indent, ' ');
    std::string result;
    std::size_t used = 0;  // of the line
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
        const std::string_view word = text.substr(0, end);
        const std::size_t length = characters(word);
        if (used > 0 && !word.empty()) {
            const bool fits = used + 1 + length <= columns;
            result += fits ? " " : next_line;
            used = fits ? used + 1 : 0;
        }
        result += word;
        used += length;
        if (end < text.size() && text[end] == '\n') {
            result += next_line;
            used = 0;
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return result;
}

}  // namespace tandem
