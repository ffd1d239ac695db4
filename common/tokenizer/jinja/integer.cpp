#include "common/tokenizer/jinja/integer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/error.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

__extension__ using Unsigned = unsigned __int128;

[[noreturn]] void fail_large() {
    throw Error("an integer of more than 128 bits is not supported");
}

constexpr int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

Integer raise(Integer base, Integer exponent) {
    Integer result = 1;
    for (;;) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_large();
        exponent >>= 1;
        if (exponent == 0) return result;
        if (base == 0 || base == 1) return result == 1 && base == 1 ? 1 : result * base;
        if (__builtin_mul_overflow(base, base, &base)) fail_large();
    }
}

// "0x", "0o", "0b" of the text; 0: none.
unsigned prefix_of(std::string_view text) {
    if (text.size() < 2 || text[0] != '0') return 0;
    const char c = static_cast<char>(text[1] | 0x20);
    return c == 'x' ? 16u : c == 'o' ? 8u : c == 'b' ? 2u : 0u;
}

// Whether underscores stand between digits alone; then they go.
bool without_underscores(std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') continue;
        if (i == 0 || i + 1 == text.size() || digit_of(text[i - 1]) == 99 || digit_of(text[i + 1]) == 99) {
            return false;
        }
    }
    std::erase(text, '_');
    return true;
}

}  // namespace

Integer compute(Whole how, Integer a, Integer b) {
    Integer result = 0;
    bool overflow = false;
    switch (how) {
        case Whole::add:
            overflow = __builtin_add_overflow(a, b, &result);
            break;
        case Whole::subtract:
            overflow = __builtin_sub_overflow(a, b, &result);
            break;
        case Whole::multiply:
            overflow = __builtin_mul_overflow(a, b, &result);
            break;
        case Whole::power:
            return raise(a, b);
        default: {
            if (b == 0) throw Error("division by zero");
            if (b == -1) {
                if (how == Whole::remainder) return 0;
                overflow = __builtin_sub_overflow(Integer{0}, a, &result);
                break;
            }
            const bool down = a % b != 0 && (a < 0) != (b < 0);  // C++ rounds to zero, Python down
            result = how == Whole::remainder ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
        }
    }
    if (overflow) fail_large();
    return result;
}

double divide(Integer a, Integer b) {
    if (b == 0) throw Error("division by zero");
    constexpr Integer kExact = Integer{1} << 53;
    if (a >= -kExact && a <= kExact && b >= -kExact && b <= kExact) {
        return static_cast<double>(a) / static_cast<double>(b);
    }
    if (a % b == 0) return to_double(a / b);
    throw Error("the quotient of integers above 2^53 is not supported");
}

Integer truncated(double value) {
    if (std::isnan(value)) throw Error("cannot convert float NaN to integer");
    if (std::isinf(value)) throw Error("cannot convert float infinity to integer");
    if (std::fabs(value) >= std::ldexp(1.0, 127)) fail_large();
    return static_cast<Integer>(value);
}

double to_double(Integer value) {
    return static_cast<double>(value);  // rounds to nearest, ties to even
}

std::optional<int> compare(Integer a, double b) {
    if (std::isnan(b)) return std::nullopt;
    if (b >= std::ldexp(1.0, 127)) return -1;
    if (b < -std::ldexp(1.0, 127)) return 1;
    const double floor = std::floor(b);
    const auto whole = static_cast<Integer>(floor);
    if (a != whole) return a < whole ? -1 : 1;
    return floor < b ? -1 : 0;
}

std::string to_text(Integer value, unsigned base) {
    auto rest = value < 0 ? Unsigned{0} - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
    std::string out;
    do {
        out += "0123456789abcdefghijklmnopqrstuvwxyz"[static_cast<unsigned>(rest % base)];
        rest /= base;
    } while (rest != 0);
    if (value < 0) out += '-';
    std::reverse(out.begin(), out.end());
    return out;
}

std::optional<Integer> parse_integer(std::string_view from, unsigned base) {
    std::string text = to_ascii_digits(strip_left(strip_right(from)));
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.erase(0, 1);
    const unsigned prefix = prefix_of(text);
    const bool any = base == 0;
    if (prefix != 0 && (any || prefix == base)) {
        base = prefix;
        text.erase(0, text.size() > 2 && text[2] == '_' ? 3 : 2);
    } else if (any) {
        base = 10;
        if (text.starts_with('0') && text.find_first_not_of("0_") != std::string::npos) return std::nullopt;
    }
    if (text.empty() || !without_underscores(text)) return std::nullopt;
    Integer value = 0;
    bool large = false;
    for (const char c : text) {
        const int digit = digit_of(c);
        if (digit >= static_cast<int>(base)) return std::nullopt;
        large = large || __builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
                (negative ? __builtin_sub_overflow(value, digit, &value)
                          : __builtin_add_overflow(value, digit, &value));
    }
    if (large) fail_large();
    return value;
}

std::optional<double> parse_real(std::string_view from) {
    std::string text = to_ascii_digits(strip_left(strip_right(from)));
    std::string plain = text;
    if (plain.starts_with('-') || plain.starts_with('+')) plain.erase(0, 1);
    for (char& c : plain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    const bool named = plain == "inf" || plain == "infinity" || plain == "nan";
    if (!named && (plain.find_first_not_of("0123456789+-e._") != std::string::npos ||
                   plain.find_first_of("0123456789") == std::string::npos)) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto digit_at = [&](std::size_t at) {
            return at < text.size() && text[at] >= '0' && text[at] <= '9';
        };
        if (text[i] == '_' && (i == 0 || !digit_at(i - 1) || !digit_at(i + 1))) return std::nullopt;
    }
    std::erase(text, '_');
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return std::nullopt;
    return value;
}

}  // namespace tandem::tokenizer::jinja
