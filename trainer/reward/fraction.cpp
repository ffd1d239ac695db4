#include "trainer/reward/fraction.h"

#include <cmath>
#include <utility>

namespace tandem::trainer {
namespace {

using Whole = Fraction::Whole;
using boost::multiprecision::msb;

constexpr unsigned kMostBits = 1U << 16;
constexpr unsigned kMostRootBits = 4096;  // a root is sought bit by bit

unsigned bits_of(const Whole& a) {
    return a == 0 ? 0 : static_cast<unsigned>(msb(abs(a))) + 1;
}

std::optional<Fraction> bounded(Fraction a) {
    if (bits_of(a.above) > kMostBits || bits_of(a.below) > kMostBits) return std::nullopt;
    return a;
}

// The largest whole number whose index-th power is not above `a`, a >= 0.
Whole floor_root(const Whole& a, unsigned index) {
    if (index == 2) return sqrt(a);
    Whole root = 0;
    for (unsigned bit = bits_of(a) / index + 1; bit-- > 0;) {
        Whole more = root;
        bit_set(more, bit);
        if (pow(more, index) <= a) root = std::move(more);
    }
    return root;
}

// mantissa * 2^exponent, the mantissa in [0.5, 1).
std::pair<double, int> scaled(const Whole& a) {
    const int excess = static_cast<int>(bits_of(a)) - 64;
    const Whole leading = excess > 0 ? Whole(a >> excess) : a;
    int exponent = 0;
    const double mantissa = std::frexp(leading.convert_to<double>(), &exponent);
    return {mantissa, exponent + (excess > 0 ? excess : 0)};
}

}  // namespace

std::optional<Fraction> product_of(const Fraction& a, const Fraction& b) {
    return bounded({a.above * b.above, a.below * b.below});
}

std::optional<Fraction> quotient_of(const Fraction& a, const Fraction& b) {
    if (b.above == 0) return std::nullopt;
    Fraction result{a.above * b.below, a.below * b.above};
    if (result.below < 0) {
        result.above = -result.above;
        result.below = -result.below;
    }
    return bounded(std::move(result));
}

std::optional<Fraction> sum_of(const Fraction& a, const Fraction& b) {
    return bounded({a.above * b.below + b.above * a.below, a.below * b.below});
}

std::optional<Fraction> exact_root(const Fraction& a, unsigned index) {
    const Whole factor = gcd(a.above, a.below);
    const Whole above = abs(a.above) / factor, below = a.below / factor;
    if (bits_of(above) > kMostRootBits || bits_of(below) > kMostRootBits) return std::nullopt;
    Fraction root{floor_root(above, index), floor_root(below, index)};
    if (pow(root.above, index) != above || pow(root.below, index) != below) return std::nullopt;
    if (a.above < 0) root.above = -root.above;
    return root;
}

double double_of(const Fraction& a) {
    if (a.above == 0) return 0;
    const auto [above, up] = scaled(abs(a.above));
    const auto [below, down] = scaled(a.below);
    const double value = std::ldexp(above / below, up - down);
    return a.above < 0 ? -value : value;
}

}  // namespace tandem::trainer
