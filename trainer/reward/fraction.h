// Exact fractions of whole numbers of any size, for comparing answers. Sizes are bounded by the reader of
// numbers.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <optional>

namespace tandem::trainer {

struct Fraction {
    using Whole = boost::multiprecision::cpp_int;
    Whole above = 0;
    Whole below = 1;  // > 0; may share factors with `above`

    friend bool operator==(const Fraction& a, const Fraction& b) {
        return a.above * b.below == b.above * a.below;
    }
};

// Nothing where the result would be larger than any answer is (65,536 bits); quotient_of also for a division
// by zero.
std::optional<Fraction> product_of(const Fraction& a, const Fraction& b);
std::optional<Fraction> quotient_of(const Fraction& a, const Fraction& b);
std::optional<Fraction> sum_of(const Fraction& a, const Fraction& b);
// The index-th root (index >= 2) where it is a fraction. The fraction is >= 0, or the index odd.
std::optional<Fraction> exact_root(const Fraction& a, unsigned index);

double double_of(const Fraction& a);  // nearly nearest; infinite beyond its range

}  // namespace tandem::trainer
