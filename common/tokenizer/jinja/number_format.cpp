#include "common/tokenizer/jinja/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/error.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr std::size_t kWidest = std::size_t{1} << 20;
constexpr std::size_t kMostDigits = 1000;

std::size_t digits_at(std::string_view text, std::size_t& at, std::size_t most) {
    std::size_t value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        value = value * 10 + static_cast<std::size_t>(text[at] - '0');
        if (value > most) throw Error("a number in a format is too large");
    }
    return value;
}

std::string printed(const char* format, int precision, double value) {
    char text[1500];
    const int size = std::snprintf(text, sizeof text, format, precision, value);
    if (size < 0 || static_cast<std::size_t>(size) >= sizeof text)
        throw Error("a formatted number is too long");
    return text;
}

// As %g, but that an integer keeps its ".0": what format() does without a type.
std::string general(double value, int precision) {
    precision = std::max(precision, 1);
    std::string text = printed("%.*e", precision - 1, value);
    const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
    const bool scientific = exponent < -4 || exponent >= precision - 1;
    if (!scientific) text = printed("%.*f", precision - 1 - exponent, value);
    const std::string tail = scientific ? text.substr(text.find('e')) : "";
    std::string head = text.substr(0, text.size() - tail.size());
    if (head.find('.') != std::string::npos) {
        head.erase(head.find_last_not_of('0') + 1);
        if (head.ends_with('.')) head.pop_back();
    }
    if (!scientific && head.find('.') == std::string::npos) head += ".0";
    return head + tail;
}

std::string grouped(const std::string& digits, char separator, std::size_t size) {
    const std::size_t whole = std::min(digits.find_first_of(".e"), digits.size());
    std::string out;
    for (std::size_t i = 0; i < whole; ++i) {
        if (i > 0 && (whole - i) % size == 0) out += separator;
        out += digits[i];
    }
    return out + digits.substr(whole);
}

std::string sign_of(bool negative, char sign) {
    return negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

}  // namespace

FormatSpec parse_spec(std::string_view text) {
    FormatSpec spec;
    std::size_t at = 0;
    const auto take = [&](std::string_view any) {
        return at < text.size() && any.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
    };
    const std::size_t filler = text.empty() ? 0 : next_character(text, 0);
    if (filler > 0 && filler < text.size() &&
        std::string_view("<>^=").find(text[filler]) != std::string_view::npos) {
        spec.fill = text.substr(0, filler);
        at = filler;
    }
    spec.align = take("<>^=");
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.alternate = take("#") != '\0';
    if (take("0") != '\0' && spec.align == '\0') {
        spec.fill = "0";
        spec.align = '=';
    }
    spec.width = digits_at(text, at, kWidest);
    spec.grouping = take(",_");
    if (take(".") != '\0') {
        if (at >= text.size() || text[at] < '0' || text[at] > '9')
            throw Error("a format without a precision behind '.'");
        spec.precision = static_cast<int>(digits_at(text, at, kMostDigits));
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) throw Error("invalid format '" + shown(text) + "'");
    return spec;
}

NumberText integer_text(Integer value, const FormatSpec& spec) {
    const char type = spec.type;
    const unsigned base = type == 'b' ? 2u : type == 'o' ? 8u : type == 'x' || type == 'X' ? 16u : 10u;
    NumberText out;
    out.digits = to_text(value, base);
    const bool negative = value < 0;
    if (negative) out.digits.erase(0, 1);
    out.sign = sign_of(negative, spec.sign);
    if (spec.alternate && base != 10) out.prefix = {'0', type};
    if (type == 'X') {
        for (char& c : out.digits) c = c >= 'a' ? static_cast<char>(c & ~0x20) : c;
    }
    if (spec.grouping == ',' && base != 10) throw Error("cannot specify ',' here");
    if (spec.grouping != '\0') out.digits = grouped(out.digits, spec.grouping, base == 10 ? 3 : 4);
    return out;
}

NumberText real_text(double value, const FormatSpec& spec) {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    const bool upper = type == 'E' || type == 'F' || type == 'G';
    const double size = std::fabs(type == '%' ? value * 100 : value);
    NumberText out;
    out.sign = sign_of(std::signbit(value) && !std::isnan(value), spec.sign);
    if (!std::isfinite(size)) {
        out.digits = std::isnan(size) ? "nan" : "inf";
    } else if (type == '\0') {
        out.digits = spec.precision ? general(size, *spec.precision) : float_repr(size);
    } else {
        std::string format = spec.alternate ? "%#.*" : "%.*";
        format += type == '%' ? 'f' : static_cast<char>(type | 0x20);
        out.digits = printed(format.c_str(), spec.precision.value_or(6), size);
    }
    if (upper) {
        for (char& c : out.digits) c = c >= 'a' && c <= 'z' ? static_cast<char>(c & ~0x20) : c;
    }
    if (spec.grouping != '\0') out.digits = grouped(out.digits, spec.grouping, 3);
    if (type == '%') out.digits += '%';
    return out;
}

void pad_text(Text& out, std::string_view text, const FormatSpec& spec, char align) {
    const std::size_t size = count_characters(text), missing = spec.width > size ? spec.width - size : 0;
    const std::size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    out.fill(left, spec.fill);
    out += text;
    out.fill(missing - left, spec.fill);
}

void pad_number(Text& out, const NumberText& number, const FormatSpec& spec) {
    const std::string head = number.sign + number.prefix;
    if (spec.align != '=')
        return pad_text(out, head + number.digits, spec, spec.align == '\0' ? '>' : spec.align);
    if (spec.grouping != '\0' && spec.fill == "0" && spec.width > head.size() + number.digits.size()) {
        throw Error("a format with zeros and separators is not supported");
    }
    out += head;
    FormatSpec rest = spec;
    rest.width -= std::min(rest.width, head.size());
    pad_text(out, number.digits, rest, '>');
}

}  // namespace tandem::tokenizer::jinja
