// Filters that make numbers, or text of them.
#include <cmath>
#include <cstdio>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/expressions.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

// Python's float(value); nullopt: it raises a ValueError or TypeError.
std::optional<double> real_of(V value) {
    if (value.is_undefined()) throw Error(*value.get<Value::Undefined>()->what);
    return value.string() != nullptr ? parse_real(*value.string()) : value.number();
}

constexpr std::size_t kMostDigitsOfReal = 320;  // before the point, with the sign
constexpr Integer kAllDigits = 330;             // behind it, of those that may not be 0

// What the parsers below take: copies and a look at each character.
void read_digits(R runtime, const std::string& text) {
    runtime.spend(2 * text.size());
    runtime.case_work(text.size());
}

Value to_int(R runtime, V value, A arguments) {
    const Bound bound("int", arguments, {"default", "base"});
    if (value.string() != nullptr) read_digits(runtime, *value.string());
    if (const auto whole = value.integer()) return *whole;
    if (value.string() != nullptr) {
        const Integer base = bound.integer(1, 10);
        const bool known = base == 0 || (base >= 2 && base <= 36);
        const auto whole = known ? parse_integer(*value.string(), static_cast<unsigned>(base)) : std::nullopt;
        if (whole) return *whole;
    }
    const auto real = real_of(value);
    if (value.get<double>() != nullptr && std::isinf(*real))
        throw Error("cannot convert float infinity to integer");
    if (real && std::isfinite(*real)) return truncated(*real);
    return bound.given(0) ? *bound[0] : Value(0);
}

Value to_float(R runtime, V value, A arguments) {
    const Bound bound("float", arguments, {"default"});
    if (value.string() != nullptr) read_digits(runtime, *value.string());
    if (const auto real = real_of(value)) return *real;
    return bound.given(0) ? *bound[0] : Value(0.0);
}

Value absolute(R, V value, A arguments) {
    const Bound bound("abs", arguments, {});
    if (value.is_undefined()) throw Error(*value.get<Value::Undefined>()->what);
    if (const auto whole = value.integer()) return *whole < 0 ? negative(*whole) : Value(*whole);
    if (value.get<double>() == nullptr)
        throw Error(fmt::format("bad operand type for abs(): '{}'", value.type_name()));
    return std::fabs(*value.get<double>());
}

// To the nearest multiple of ten^-digits, a tie to the even one.
Integer round_integer(Integer value, Integer digits) {
    if (digits >= 0) return value;
    if (digits < -38) return 0;
    const Integer unit = compute(Whole::power, 10, -digits);
    const Integer rest = compute(Whole::remainder, value, unit), down = value - rest;
    const bool up = rest > unit / 2 || (rest * 2 == unit && (down / unit) % 2 != 0);
    return up ? compute(Whole::add, down, unit) : down;
}

// digits: up to kAllDigits.
std::string fixed(double value, int digits) {
    char text[kMostDigitsOfReal + static_cast<std::size_t>(kAllDigits)];
    const int size = std::snprintf(text, sizeof text, "%.*f", digits, value);
    return {text, static_cast<std::size_t>(size)};
}

double round_real(double value, Integer digits) {
    if (!std::isfinite(value) || digits > kAllDigits) return value;
    if (digits < 0) {
        if (digits < -308) return std::copysign(0.0, value);
        if (std::fabs(value) >= 1e37) throw Error("round of so large a number to tens is not supported");
        const double whole = std::floor(std::fabs(value)), part = std::fabs(value) - whole;
        const auto exact = static_cast<Integer>(whole);
        Integer rounded = round_integer(exact, digits);
        if (part > 0 && rounded < exact && round_integer(exact + 1, digits) > rounded) {
            rounded = round_integer(exact + 1, digits);  // just above a tie
        }
        return std::copysign(to_double(rounded), value);
    }
    return *parse_real(fixed(value, static_cast<int>(digits)));
}

Value rounded(R runtime, V value, A arguments) {
    const Bound bound("round", arguments, {"precision", "method"});
    runtime.case_work(4 * kMostDigitsOfReal);
    const std::string_view method = bound.string(1, "common");
    const bool whole_wanted = bound.given(0) && bound[0]->is_none();  // Python's round(value, None)
    const Integer digits = whole_wanted ? 0 : bound.integer(0, 0);
    if (method != "common" && method != "ceil" && method != "floor") {
        throw Error("round: the method must be common, ceil or floor");
    }
    if (!value.is_number())
        throw Error(fmt::format("type {} doesn't define __round__ method", value.type_name()));
    if (whole_wanted && method != "common") throw Error("round: the precision must be a number");
    if (method == "common") {
        if (whole_wanted && !value.integer()) return truncated(round_real(*value.number(), 0));
        return value.integer() ? Value(round_integer(*value.integer(), digits))
                               : Value(round_real(*value.number(), digits));
    }
    const Value scale = combine(runtime, Binary::power, 10, digits);
    const Value scaled = combine(runtime, Binary::multiply, value, scale);
    Value whole = scaled;
    if (const double* real = scaled.get<double>()) {
        whole = truncated(method == "ceil" ? std::ceil(*real) : std::floor(*real));
    }
    return combine(runtime, Binary::divide, whole, scale);
}

Value file_size(R runtime, V value, A arguments) {
    const Bound bound("filesizeformat", arguments, {"binary"});
    if (value.string() != nullptr) read_digits(runtime, *value.string());
    runtime.case_work(4 * kMostDigitsOfReal);
    const auto bytes = real_of(value);
    if (!bytes) throw Error("filesizeformat needs a number");
    const bool binary = bound.flag(0, false);
    const double base = binary ? 1024 : 1000;
    if (*bytes == 1) return "1 Byte";
    if (*bytes < base) return to_text(truncated(*bytes)) + " Bytes";
    const std::string letters = binary ? "KMGTPEZY" : "kMGTPEZY";
    double unit = base;
    std::size_t i = 0;
    while (i + 1 < letters.size() && *bytes >= unit * base) {
        unit *= base;
        ++i;
    }
    return fixed(base * *bytes / (unit * base), 1) + ' ' + letters[i] + (binary ? "iB" : "B");
}

}  // namespace

Filters number_filters() {
    return {
        {"int", to_int},    {"float", to_float},           {"abs", absolute},
        {"round", rounded}, {"filesizeformat", file_size},
    };
}

}  // namespace tandem::tokenizer::jinja
