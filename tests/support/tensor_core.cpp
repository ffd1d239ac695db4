#include "tests/support/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fibers {
namespace {

thread_local TensorCore tensor_core = TensorCore::hopper;

constexpr int kFractionBits = 7;  // of bfloat16
constexpr int kOfZero = -1000;    // the exponent of a zero of a or b: below every other product's
constexpr int kSmallest = -133;   // bfloat16's smallest number's: the largest of a sum is at least that

// significand · 2^(exponent - fraction bits of the format). Denormals have the smallest normal's exponent.
struct Parts {
    int exponent = 0;
    std::int32_t significand = 0;
};

Parts parts(std::uint32_t exponent, std::int32_t fraction, std::int32_t one, bool negative) {
    const std::int32_t magnitude = exponent == 0 ? fraction : fraction + one;
    return {static_cast<int>(std::max(exponent, 1u)) - 127, negative ? -magnitude : magnitude};
}

Parts parts_of_bfloat16(std::uint16_t bits) {
    return parts(bits >> 7 & 0xffu, bits & 0x7f, 0x80, bits >> 15 != 0);
}

Parts parts_of_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return parts(bits >> 23 & 0xffu, static_cast<std::int32_t>(bits & 0x7fffffu), 0x800000, bits >> 31 != 0);
}

// Sixteen elements along k.
struct Line {
    int exponents[16];
    std::int32_t significands[16];
    float values[16];
    bool finite = true;
};

Line line_of(const std::uint16_t (&bits)[16]) {
    Line line;
    for (int k = 0; k < 16; ++k) {
        const Parts of = parts_of_bfloat16(bits[k]);
        line.exponents[k] = of.significand == 0 ? kOfZero : of.exponent;
        line.significands[k] = of.significand;
        line.values[k] = std::bit_cast<float>(std::uint32_t{bits[k]} << 16);
        line.finite = line.finite && of.exponent < 128;
    }
    return line;
}

// significand / 2^bits, towards zero.
std::int64_t cut(std::int32_t significand, int bits) {
    const std::int32_t magnitude = std::abs(significand) >> std::min(bits, 31);
    return significand < 0 ? -magnitude : magnitude;
}

// sum · 2^exponent as float32, towards zero but for what is too large.
float cut_to_float(std::int64_t sum, int exponent) {
    if (sum == 0) return 0.0f;
    const std::uint32_t sign = sum < 0 ? 0x80000000u : 0;
    const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    const int leading = 63 - std::countl_zero(magnitude);
    const int result = leading + exponent;
    if (result > 127) return std::bit_cast<float>(sign | 0x7f800000u);
    // The last bit kept is worth 2^(result - 23), at least 2^-149.
    const int drop = std::max(result - 23, -149) - exponent;
    const std::uint64_t kept = drop >= 64 ? 0 : drop > 0 ? magnitude >> drop : magnitude << -drop;
    const auto fraction = static_cast<std::uint32_t>(kept);
    if (fraction == 0) return 0.0f;
    if (result < -126) return std::bit_cast<float>(sign | fraction);
    const auto biased = static_cast<std::uint32_t>(result + 127);
    return std::bit_cast<float>(sign | biased << 23 | (fraction & 0x7fffffu));
}

// c + the products [begin, end), as IEEE has it.
double plain(const Line& a, const Line& b, int begin, int end, float c) {
    double sum = double{c};
    for (int k = begin; k < end; ++k) sum += double{a.values[k]} * double{b.values[k]};
    return sum;
}

// c + the products [begin, end), all at once, with that many bits of fraction.
float fused_sum(const Line& a, const Line& b, int begin, int end, float c, int fraction) {
    if (!a.finite || !b.finite || !std::isfinite(c)) {
        const double sum = plain(a, b, begin, end, c);
        if (std::isnan(sum)) return std::bit_cast<float>(0x7fffffffu);
        if (std::isinf(sum)) return static_cast<float>(sum);
    }
    Parts start = parts_of_float(c);
    if (start.significand == 0) start.exponent = kSmallest;
    int top = start.exponent;
    for (int k = begin; k < end; ++k) top = std::max(top, a.exponents[k] + b.exponents[k]);
    std::int64_t sum = cut(start.significand * (1 << (fraction - 23)), top - start.exponent);
    for (int k = begin; k < end; ++k) {
        const std::int32_t product =
            a.significands[k] * b.significands[k] * (1 << (fraction - 2 * kFractionBits));
        sum += cut(product, top - a.exponents[k] - b.exponents[k]);
    }
    return cut_to_float(sum, top - fraction);
}

}  // namespace

void set_tensor_core(TensorCore which) {
    tensor_core = which;
}

void tensor_core_product(const std::uint16_t (&a)[16][16], const std::uint16_t (&b)[8][16],
                         float (&c)[16][8]) {
    Line rows[16], columns[8];
    for (int i = 0; i < 16; ++i) rows[i] = line_of(a[i]);
    for (int i = 0; i < 8; ++i) columns[i] = line_of(b[i]);
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
            float& sum = c[row][column];
            if (tensor_core == TensorCore::hopper) {
                sum = fused_sum(rows[row], columns[column], 0, 16, sum, 25);
            } else {
                sum = fused_sum(rows[row], columns[column], 0, 8, sum, 24);
                sum = fused_sum(rows[row], columns[column], 8, 16, sum, 24);
            }
        }
    }
}

}  // namespace fibers
