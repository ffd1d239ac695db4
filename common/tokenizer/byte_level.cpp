#include "common/tokenizer/byte_level.h"

#include <array>

#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr char32_t kBehindLast = 0x144;

// Printable bytes stand for themselves; the other 68 get characters from U+0100 on, in their order.
struct Alphabet {
    std::array<char32_t, 256> character{};
    std::array<int, kBehindLast> byte{};

    constexpr Alphabet() {
        byte.fill(-1);
        char32_t next = kFirstSubstitute;
        for (std::size_t b = 0; b < 256; ++b) {
            const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            character[b] = printable ? static_cast<char32_t>(b) : next++;
            byte[character[b]] = static_cast<int>(b);
        }
    }
};
constexpr Alphabet kAlphabet;

}  // namespace

void append_byte_characters(std::string& out, std::string_view bytes) {
    for (const char c : bytes) append_utf8(out, kAlphabet.character[static_cast<unsigned char>(c)]);
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text, at);
        if (c >= kBehindLast || kAlphabet.byte[c] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(kAlphabet.byte[c]));
    }
    return bytes;
}

}  // namespace tandem::tokenizer
