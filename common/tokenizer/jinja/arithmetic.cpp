// a + b and the like, as Python computes them.
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/expressions.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**", "~"};

Value integers(Binary how, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    switch (how) {
        case Binary::add:
            overflow = __builtin_add_overflow(a, b, &result);
            break;
        case Binary::subtract:
            overflow = __builtin_sub_overflow(a, b, &result);
            break;
        case Binary::multiply:
            overflow = __builtin_mul_overflow(a, b, &result);
            break;
        case Binary::floor_divide:
        case Binary::remainder: {
            if (b == 0) throw Error("division by zero");
            if (b == -1) {
                overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
                if (how == Binary::remainder) return std::int64_t{0};
                break;
            }
            const bool down = a % b != 0 && (a < 0) != (b < 0);  // C++ rounds to zero, Python down
            result = how == Binary::remainder ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
            break;
        }
        default:
            break;
    }
    if (overflow) throw Error("an integer overflows 64 bits");
    return result;
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
            return std::floor(a / b);
        case Binary::remainder: {
            const double rest = std::fmod(a, b);
            return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        }
        default:
            return std::pow(a, b);
    }
}

Value repeat(Runtime& runtime, const Value& what, std::int64_t times) {
    const auto count = static_cast<std::size_t>(times < 0 ? 0 : times);
    const std::size_t one =
        what.string() != nullptr ? what.string()->size() : what.items()->size() * sizeof(Value);
    if (one > 0 && count > Value::kHeaviest / one) throw Error("a value grows too large");
    runtime.spend(one * count);
    std::string text;
    List items;
    for (std::size_t i = 0; one > 0 && i < count; ++i) {
        if (what.string() != nullptr) {
            text += *what.string();
        } else {
            items.insert(items.end(), what.items()->begin(), what.items()->end());
        }
    }
    return what.string() != nullptr ? Value(std::move(text)) : Value::list(std::move(items));
}

}  // namespace

Value combine(Runtime& runtime, Binary how, const Value& a, const Value& b) {
    if (how == Binary::concat) {
        std::string text = a.str() + b.str();
        runtime.spend(text.size());
        return text;
    }
    for (const Value* operand : {&a, &b}) {
        if (operand->is_undefined()) throw Error(operand->get<Value::Undefined>()->what);
    }
    if (how == Binary::add && a.string() != nullptr && b.string() != nullptr) {
        runtime.spend(a.string()->size() + b.string()->size());
        return *a.string() + *b.string();
    }
    if (how == Binary::add && a.items() != nullptr && b.items() != nullptr) {
        List all = *a.items();
        all.insert(all.end(), b.items()->begin(), b.items()->end());
        runtime.spend(all.size() * sizeof(Value));
        return Value::list(std::move(all));
    }
    const auto repeats = [](const Value& value) {
        return value.string() != nullptr || value.items() != nullptr;
    };
    if (how == Binary::multiply && repeats(a) && b.integer()) return repeat(runtime, a, *b.integer());
    if (how == Binary::multiply && repeats(b) && a.integer()) return repeat(runtime, b, *a.integer());
    if (!a.number() || !b.number()) {
        throw Error(fmt::format("unsupported operands for {}: '{}' and '{}'", kSigns[static_cast<int>(how)],
                                a.type_name(), b.type_name()));
    }
    if (how == Binary::power && a.integer() && b.integer() && *b.integer() >= 0) {
        std::int64_t result = 1;
        for (std::int64_t i = 0; i < *b.integer(); ++i) {
            if (__builtin_mul_overflow(result, *a.integer(), &result))
                throw Error("an integer overflows 64 bits");
            if (i > 64 && (*a.integer() == 0 || *a.integer() == 1 || *a.integer() == -1)) {
                return *a.integer() == -1 && *b.integer() % 2 == 0 ? std::int64_t{1} : *a.integer();
            }
        }
        return result;
    }
    if (a.integer() && b.integer() && how != Binary::divide && how != Binary::power) {
        return integers(how, *a.integer(), *b.integer());
    }
    return reals(how, *a.number(), *b.number());
}

}  // namespace tandem::tokenizer::jinja
