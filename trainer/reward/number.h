// The number that an answer is, and the number that a sample ends on: plain, as GSM8K's graders read it, or
// as LaTeX writes it, as the answers of MATH-like data are.
#pragma once

#include <optional>
#include <string_view>

#include "trainer/reward/fraction.h"

namespace tandem::trainer {

struct Number {
    double value = 0;               // nearest; infinite where only `exact` can hold it
    std::optional<Fraction> exact;  // nothing for a root that is no fraction
    bool decimal = false;  // written with digits behind a point or with an exponent: often a rounded value
};

// A number is
//
//   [sign] [currency] digits [.digits] [e[sign]digits]   digits may be grouped by thousands: 1,234,567, and in
//                                                       LaTeX 1{,}234, 1,\!234, 1\,234
//   [sign] whole / whole, [sign] whole whole / whole     1/2, 1 1/2 (a mixed number); not over zero,
//                                                       not of three parts (a date)
//   [sign] \frac{a}{b}, whole\frac{a}{b}                 a and b are numbers; \frac12, \dfrac, \tfrac alike;
//                                                       2\frac{1}{2} is the mixed number 2.5
//   [sign] [number] \sqrt{a} …, \sqrt[n]{a}              a product with roots: 2\sqrt{4},
//                                                       \frac{1}{2}\cdot\sqrt{3}; and such a product / whole
//   \boxed{number}
//
// A sign is '-', '+' or U+2212, directly before the digits or the currency ($ \$ € £ ¥), and no sign where it
// follows a digit, a letter or ')' (10-3 ends on 3). A point or comma that no digit follows belongs to the
// sentence ("5."). Numbers with a point or an exponent that are beyond a double's range, and whole ones of
// more than 4,096 digits, are none.

// An answer: what follows the last "####", else all of it, where that is one number, alone or with what does
// not change it: $…$, \(…\), \[…\], **…**, \left, spaces; a unit behind it: %, \%, ^\circ, a currency,
// \text{…}, or up to six words that are neither numbers nor join, bound or multiply one (50% is 50;
// "3 \text{ or } 4", "4\pi", "4x", "x = 4", "5 million", "(1, 2)" and "2+2" are nothing).
std::optional<Number> sole_number(std::string_view text);

// A sample, which is free text. The first that there is of: what follows the last "####" — there its first
// number; the last \boxed{…} that is not empty — read as an answer is, or what stands there behind the last
// '='; the whole text, read as an answer is; the last number of the text. Whatever follows a number (%,
// units) is ignored, but what is part of a larger formula (x^{4}, 4\pi, \frac{x}{4}, 1+\sqrt{2}) is no
// number, and none before it is the last one either.
std::optional<Number> final_number(std::string_view text);

// Whether a sample's number is the answer's. Whole numbers and fractions are compared exactly. Where one of
// the two is decimal or a root: |a - b| <= tolerance * max(1, |b|), of a root at least 1e-9. A tolerance
// above the default, kNumberTolerance, holds for whole numbers and fractions too.
inline constexpr double kNumberTolerance = 1e-6;
bool same_number(const Number& given, const Number& right, double tolerance);

}  // namespace tandem::trainer
