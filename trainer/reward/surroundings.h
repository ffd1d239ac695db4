// What stands around a number in a text, and what that makes of it.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::trainer {

// The text begins with \name, and not with a longer one.
bool starts_command(std::string_view text, std::string_view name);

// True when a minus precedes the number that starts at `start`, with or without a currency sign between. A
// minus after an operand is a subtraction or a hyphen. Before LaTeX there may be spaces.
bool minus_before(std::string_view text, std::size_t start, bool latex);

// What stands left of the number makes it part of a formula: an exponent, an index, a factor, a summand.
// latex_end: where the last term of LaTeX before it ended.
bool inside_formula(std::string_view text, std::size_t start, std::size_t latex_end);

// What stands right of a number makes it part of a formula. latex: the number is written so.
bool formula_goes_on(std::string_view rest, bool latex);

}  // namespace tandem::trainer
