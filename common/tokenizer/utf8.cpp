#include "common/tokenizer/utf8.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstdint>

#include "common/tokenizer/newer_characters.h"

namespace tandem::tokenizer {
namespace {

std::uint32_t category_of(char32_t code_point) {
    return U_GET_GC_MASK(static_cast<UChar32>(stand_in_for(code_point)));
}

bool assigned_by(char32_t code_point, std::uint8_t unicode_major) {
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(code_point), age);
    return age[0] > 0 && age[0] <= unicode_major;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
    const auto byte = [&](std::size_t i) {
        return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
    };
    const char32_t lead = byte(0);
    char32_t code_point = lead;
    std::size_t length = 1;
    if (lead >= 0xF0) {
        length = 4;
        code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    } else if (lead >= 0xE0) {
        length = 3;
        code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    } else if (lead >= 0xC0) {
        length = 2;
        code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    }
    at += length;
    return code_point;
}

char32_t previous_code_point(std::string_view text, std::size_t& at) {
    --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    std::size_t start = at;
    return next_code_point(text, start);
}

void append_utf8(std::string& out, char32_t c) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else if (c < 0x10000) {
        put(0xE0 | c >> 12);
        put(0x80 | (c >> 6 & 0x3F));
    } else {
        put(0xF0 | c >> 18);
        put(0x80 | (c >> 12 & 0x3F));
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
}

bool is_valid_utf8(std::string_view bytes) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const auto length = static_cast<std::int64_t>(bytes.size());
    for (std::int64_t at = 0; at < length;) {
        UChar32 c = 0;
        if (data[at] < 0x80) {
            ++at;
            continue;
        }
        U8_NEXT(data, at, length, c);
        if (c < 0) return false;
    }
    return true;
}

std::string to_valid_utf8(std::string_view bytes) {
    if (is_valid_utf8(bytes)) return std::string(bytes);
    std::string out;
    out.reserve(bytes.size());
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const auto length = static_cast<std::int64_t>(bytes.size());
    for (std::int64_t at = 0; at < length;) {
        UChar32 c = 0;
        U8_NEXT_OR_FFFD(data, at, length, c);
        append_utf8(out, static_cast<char32_t>(c));
    }
    return out;
}

bool is_white_space(char32_t c) {
    return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}
// Tolong Siki digits came with Unicode 17, which the reference knows here.
bool is_numeric(char32_t c) {
    return (category_of(c) & U_GC_N_MASK) != 0 || (c >= 0x11DE0 && c <= 0x11DE9);
}

// Two vowel signs have become letters since, and a punctuation sign a mark.
bool is_mark(char32_t c) {
    if (c == 0x111C9) return false;
    return ((category_of(c) & U_GC_M_MASK) != 0 && assigned_by(c, 9)) || c == 0x1CF2 || c == 0x1CF3;
}

bool is_punctuation(char32_t c) {
    if (c < 0x80)
        return u_ispunct(static_cast<UChar32>(c)) != 0 ||
               (c > 0x20 && c < 0x7F && !u_isalnum(static_cast<UChar32>(c)));
    if (c == 0x166D || c == 0x111C9) return true;  // have become a symbol and a mark since
    return (category_of(c) & U_GC_P_MASK) != 0 && assigned_by(c, 8);
}

bool is_word(char32_t c) {
    const char32_t known = stand_in_for(c);
    return u_hasBinaryProperty(static_cast<UChar32>(known), UCHAR_ALPHABETIC) != 0 ||
           (category_of(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
           u_hasBinaryProperty(static_cast<UChar32>(known), UCHAR_JOIN_CONTROL) != 0;
}

}  // namespace tandem::tokenizer
