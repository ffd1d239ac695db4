// a + b and the like, as Python computes them.
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/expressions.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**", "~"};

double raised(double a, double b) {
    if (a == 0 && b < 0) throw Error("0.0 cannot be raised to a negative power");
    if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        throw Error("a power that is a complex number is not supported");
    }
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        throw Error("numerical result out of range");
    return result;
}

// Quotient and remainder as Python's float_divmod: the remainder has the divisor's sign.
std::pair<double, double> divided(double a, double b) {
    double rest = std::fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            quotient -= 1;
        }
    } else {
        rest = std::copysign(0.0, b);
    }
    if (quotient == 0) return {std::copysign(0.0, a / b), rest};
    const double floor = std::floor(quotient);
    return {quotient - floor > 0.5 ? floor + 1 : floor, rest};
}

Value reals(Binary how, double a, double b) {
    const bool divides = how == Binary::divide || how == Binary::floor_divide || how == Binary::remainder;
    if (divides && b == 0) throw Error("division by zero");
    switch (how) {
        case Binary::add:
            return a + b;
        case Binary::subtract:
            return a - b;
        case Binary::multiply:
            return a * b;
        case Binary::divide:
            return a / b;
        case Binary::floor_divide:
            return divided(a, b).first;
        case Binary::remainder:
            return divided(a, b).second;
        default:
            return raised(a, b);
    }
}

Value integers(Binary how, Integer a, Integer b) {
    switch (how) {
        case Binary::divide:
            return divide(a, b);
        case Binary::power:
            return b < 0 ? Value(raised(to_double(a), to_double(b))) : Value(compute(Whole::power, a, b));
        case Binary::add:
            return compute(Whole::add, a, b);
        case Binary::subtract:
            return compute(Whole::subtract, a, b);
        case Binary::multiply:
            return compute(Whole::multiply, a, b);
        case Binary::floor_divide:
            return compute(Whole::floor_divide, a, b);
        default:
            return compute(Whole::remainder, a, b);
    }
}

Value like(Runtime& runtime, const Value& sequence, List items) {
    return sequence.is_tuple() ? Value::tuple(runtime, std::move(items))
                               : Value::list(runtime, std::move(items));
}

Value repeat(Runtime& runtime, const Value& what, Integer times) {
    const std::size_t one =
        what.string() != nullptr ? what.string()->size() : what.items()->size() * sizeof(Value);
    if (one > 0 && times > static_cast<Integer>(Value::kHeaviest / one))
        throw Error("a value grows too large");
    const auto count = static_cast<std::size_t>(times < 0 || one == 0 ? 0 : times);
    if (what.string() != nullptr) {
        Text text(runtime);
        text.fill(count, *what.string());
        return what.is_markup() ? Value::markup(text.take()) : Value(text.take());
    }
    runtime.spend(one * count);
    List items;
    items.reserve(what.items()->size() * count);
    for (std::size_t i = 0; i < count; ++i) {
        items.insert(items.end(), what.items()->begin(), what.items()->end());
    }
    return like(runtime, what, std::move(items));
}

Value joined(Runtime& runtime, const Value& a, const Value& b) {
    const bool markup = a.is_markup() || b.is_markup();
    Text text(runtime);
    text += markup ? escape_html(runtime, a) : *a.string();
    text += markup ? escape_html(runtime, b) : *b.string();
    return markup ? Value::markup(text.take()) : Value(text.take());
}

Value chained(Runtime& runtime, const Value& a, const Value& b) {
    runtime.spend((a.items()->size() + b.items()->size()) * sizeof(Value));
    List all;
    all.reserve(a.items()->size() + b.items()->size());
    all.insert(all.end(), a.items()->begin(), a.items()->end());
    all.insert(all.end(), b.items()->begin(), b.items()->end());
    return like(runtime, a, std::move(all));
}

}  // namespace

Value combine(Runtime& runtime, Binary how, const Value& a, const Value& b) {
    if (how == Binary::concat) {
        Text text(runtime);
        print(runtime, text, a);
        print(runtime, text, b);
        return text.take();
    }
    if (how == Binary::remainder && a.string() != nullptr) {
        if (a.is_markup()) throw Error("% of a safe string is not supported");
        return percent_format(runtime, *a.string(), b);
    }
    for (const Value* operand : {&a, &b}) {
        if (operand->is_undefined()) throw Error(*operand->get<Value::Undefined>()->what);
    }
    if (how == Binary::add && a.string() != nullptr && b.string() != nullptr) return joined(runtime, a, b);
    if (how == Binary::add && a.items() != nullptr && b.items() != nullptr && a.is_tuple() == b.is_tuple()) {
        return chained(runtime, a, b);
    }
    const auto repeats = [](const Value& value) {
        return value.string() != nullptr || value.items() != nullptr;
    };
    if (how == Binary::multiply && repeats(a) && b.integer()) return repeat(runtime, a, *b.integer());
    if (how == Binary::multiply && repeats(b) && a.integer()) return repeat(runtime, b, *a.integer());
    if (!a.is_number() || !b.is_number()) {
        throw Error(fmt::format("unsupported operands for {}: '{}' and '{}'", kSigns[static_cast<int>(how)],
                                a.type_name(), b.type_name()));
    }
    if (a.integer() && b.integer()) return integers(how, *a.integer(), *b.integer());
    return reals(how, *a.number(), *b.number());
}

Value negative(const Value& value) {
    if (value.is_undefined()) throw Error(*value.get<Value::Undefined>()->what);
    if (const auto whole = value.integer()) return compute(Whole::subtract, 0, *whole);
    if (const double* real = value.get<double>()) return -*real;
    throw Error(fmt::format("'{}' has no negative", value.type_name()));
}

}  // namespace tandem::tokenizer::jinja
