#include <algorithm>

#include "common/tokenizer/newer_characters.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {

char32_t stand_in_for(char32_t code_point) {
    const auto ranges = newer_characters();
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                         [](char32_t c, const NewerCharacters& r) { return c < r.first; });
    if (behind == ranges.begin()) return code_point;
    const NewerCharacters& range = *(behind - 1);
    return code_point <= range.last ? range.stand_in : code_point;
}

std::string_view with_stand_ins(std::string_view text, std::string& storage) {
    storage.clear();
    std::size_t copied = 0;
    for (std::size_t at = 0; at < text.size();) {
        // None of them is below U+0800, so bytes below 0xE0 start nothing of interest.
        if (static_cast<unsigned char>(text[at]) < 0xE0) {
            ++at;
            continue;
        }
        const std::size_t start = at;
        const char32_t code_point = next_code_point(text, at);
        const char32_t other = stand_in_for(code_point);
        if (other == code_point) continue;
        storage.append(text, copied, start - copied);
        append_utf8(storage, other);
        copied = at;
    }
    if (copied == 0) return text;
    storage.append(text, copied);
    return storage;
}

}  // namespace tandem::tokenizer
