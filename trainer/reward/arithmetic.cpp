#include "trainer/reward/arithmetic.h"

#include <cmath>

namespace tandem::trainer {
namespace {

std::optional<Number> combined(const Number& a, const Number& b, double value,
                               std::optional<Fraction> (*exactly)(const Fraction&, const Fraction&)) {
    Number result{value, std::nullopt, a.decimal || b.decimal};
    if (a.exact && b.exact) {
        result.exact = exactly(*a.exact, *b.exact);
        if (!result.exact) return std::nullopt;
        if (!std::isfinite(value)) result.value = double_of(*result.exact);
        return result;
    }
    return std::isfinite(value) ? std::optional(result) : std::nullopt;
}
}  // namespace

std::optional<Number> times(const Number& a, const Number& b) {
    return combined(a, b, a.value * b.value, product_of);
}
std::optional<Number> over(const Number& a, const Number& b) {
    return combined(a, b, a.value / b.value, quotient_of);
}
std::optional<Number> plus(const Number& a, const Number& b) {
    return combined(a, b, a.value + b.value, sum_of);
}
Number negative(Number a) {
    a.value = -a.value;
    if (a.exact) a.exact->above = -a.exact->above;
    return a;
}

std::optional<Number> root_of(const Number& a, unsigned index) {
    if (a.value < 0 && index % 2 == 0) return std::nullopt;
    Number result{index == 2   ? std::sqrt(a.value)
                  : index == 3 ? std::cbrt(a.value)
                               : std::copysign(std::pow(std::abs(a.value), 1.0 / index), a.value),
                  std::nullopt, a.decimal};
    if (a.exact) result.exact = exact_root(*a.exact, index);
    if (result.exact) result.value = double_of(*result.exact);
    return std::isfinite(result.value) ? std::optional(result) : std::nullopt;
}

}  // namespace tandem::trainer
