// Arithmetic of numbers as answers write them: exact as long as both are, and nothing where there is no
// result, or one larger than any answer.
#pragma once

#include <optional>

#include "trainer/reward/number.h"

namespace tandem::trainer {

std::optional<Number> times(const Number& a, const Number& b);
std::optional<Number> over(const Number& a, const Number& b);
std::optional<Number> plus(const Number& a, const Number& b);
Number negative(Number a);
// index >= 2.
std::optional<Number> root_of(const Number& a, unsigned index);

}  // namespace tandem::trainer
