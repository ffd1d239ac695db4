#include "common/tokenizer/jinja/wrap.h"

#include <algorithm>

#include "common/error.h"

namespace tandem::tokenizer::jinja {
namespace {

bool is_ascii_space(char c) {
    return std::string_view("\t\n\v\f\r ").find(c) != std::string_view::npos;
}

// Words and the white space between them, in turn.
std::vector<std::string_view> chunks_of(Runtime& runtime, std::string_view text) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        runtime.spend(3 * sizeof(std::string_view));  // vectors double, and that of a line
        const bool space = is_ascii_space(text[0]);
        const auto end =
            std::find_if(text.begin(), text.end(), [&](char c) { return is_ascii_space(c) != space; });
        const auto size = static_cast<std::size_t>(end - text.begin());
        out.push_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return out;
}

bool is_blank(std::string_view chunk) {
    return strip_left(chunk).empty();
}

}  // namespace

// Greedy: as many chunks as fit, white space at a line's ends dropped but for the first line's start.
void wrap(Runtime& runtime, std::string_view text, const WrapStyle& style, const Part& piece) {
    if (style.width <= 0) throw Error("wordwrap: the width must be above 0");
    if (style.breaks_at_hyphens && text.find('-') != std::string_view::npos) {
        throw Error("wordwrap of a text with hyphens needs break_on_hyphens=false here");
    }
    const auto width = static_cast<std::size_t>(std::min<Integer>(style.width, INT64_MAX));
    std::vector<std::string_view> chunks = chunks_of(runtime, text);
    std::reverse(chunks.begin(), chunks.end());
    bool first = true;
    while (!chunks.empty()) {
        if (!first && is_blank(chunks.back())) chunks.pop_back();
        std::vector<std::string_view> line;
        std::size_t length = 0;
        while (!chunks.empty()) {
            const std::size_t size = count_characters(chunks.back());
            runtime.look_up(chunks.back().size());
            if (length + size > width) break;
            line.push_back(chunks.back());
            length += size;
            chunks.pop_back();
        }
        if (!chunks.empty() && count_characters(chunks.back()) > width) {
            std::string_view& word = chunks.back();
            if (style.breaks_long_words) {
                const std::size_t bytes = bytes_of(word, width - length);
                line.push_back(word.substr(0, bytes));
                word.remove_prefix(bytes);
            } else if (line.empty()) {
                line.push_back(word);
                chunks.pop_back();
            }
        }
        if (!line.empty() && is_blank(line.back())) line.pop_back();
        if (line.empty()) continue;
        first = false;
        const char* begin = line.front().data();
        piece({begin, static_cast<std::size_t>(line.back().data() + line.back().size() - begin)});
    }
}

}  // namespace tandem::tokenizer::jinja
