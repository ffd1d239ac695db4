#include "tests/support/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "common/ops/cpu/simd.h"

// Most of what kernels on the host do is done here. Its loops over columns are written so that they become
// instructions on vectors: without branches, numbers of one width in each.
namespace fibers {
namespace {

thread_local TensorCore tensor_core = TensorCore::hopper;

constexpr std::size_t kRows = 16, kColumns = 8, kTerms = 16;
constexpr int kBias = 127;               // of an exponent
constexpr std::int16_t kOfZero = -1000;  // the exponent of a zero of a or b: below every other product's
constexpr int kSmallest = -133;  // bfloat16's smallest number's: the largest of a sum is at least that

constexpr std::uint16_t kInfinity = 0x7f80;  // infinity's bits

float float_of(std::uint16_t bfloat16) {
    return std::bit_cast<float>(std::uint32_t{bfloat16} << 16);
}

// Denormals have the smallest normal's exponent.
int exponent_of(float value) {
    return std::max(static_cast<int>(std::bit_cast<std::uint32_t>(value) >> 23 & 0xff), 1) - kBias;
}

double two_to(int exponent) {
    return std::bit_cast<double>(static_cast<std::int64_t>(1023 + exponent) << 52);
}

// a or b. Infinities and NaNs count as zeros: add_not_finite sees to them.
template <std::size_t height, std::size_t width>
struct Matrix {
    double values[height][width];
    std::int16_t exponents[height][width];
    bool finite = true;
    explicit Matrix(const std::uint16_t (&bits)[height][width]) {
        for (std::size_t y = 0; y < height; ++y) {
            std::int16_t largest = 0;
            for (std::size_t x = 0; x < width; ++x) {
                const auto magnitude = static_cast<std::int16_t>(bits[y][x] & 0x7fff);
                const auto exponent = static_cast<std::int16_t>(magnitude >> 7);
                exponents[y][x] = static_cast<std::int16_t>((exponent == 0 ? 1 : exponent) - kBias);
                if (magnitude == 0 || magnitude >= kInfinity) exponents[y][x] = kOfZero;
                largest = std::max(largest, magnitude);
            }
            finite = finite && largest < kInfinity;
            for (std::size_t x = 0; x < width; ++x) values[y][x] = double{float_of(bits[y][x])};
            for (std::size_t x = 0; x < width && largest >= kInfinity; ++x) {
                if (!std::isfinite(values[y][x])) values[y][x] = 0;
            }
        }
    }
};

using A = Matrix<kRows, kTerms>;
using B = Matrix<kTerms, kColumns>;

// Towards zero but for what is too large.
float cut_to_float(double value) {
    if (std::abs(value) < 0x1p-126)
        return static_cast<float>(static_cast<std::int32_t>(value * 0x1p149)) * 0x1p-149f;
    const std::uint64_t beyond_float = (std::uint64_t{1} << (52 - 23)) - 1;
    return static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & ~beyond_float));
}

// A row of c + the products [begin, end), all at once, with that many bits of fraction: each is cut off to a
// whole number of units of the largest one's last bit. Sixteen products together are less than 2^31 units.
template <std::size_t begin, std::size_t end, int fraction>
void add_to_row(const A& a, std::size_t row, const B& b, float (&c)[kColumns]) {
    std::int16_t top[kColumns];
    for (std::size_t i = 0; i < kColumns; ++i)
        top[i] = static_cast<std::int16_t>(c[i] == 0 ? kSmallest : exponent_of(c[i]));
    for (std::size_t k = begin; k < end; ++k) {
        for (std::size_t i = 0; i < kColumns; ++i)
            top[i] = std::max(top[i], static_cast<std::int16_t>(a.exponents[row][k] + b.exponents[k][i]));
    }
    double units[kColumns];  // that 1 has
    for (std::size_t i = 0; i < kColumns; ++i) units[i] = two_to(fraction - top[i]);
    std::int32_t sums[kColumns] = {};
    for (std::size_t k = begin; k < end; ++k) {
        for (std::size_t i = 0; i < kColumns; ++i)
            sums[i] += static_cast<std::int32_t>(a.values[row][k] * b.values[k][i] * units[i]);
    }
    for (std::size_t i = 0; i < kColumns; ++i) {
        const double of_c = static_cast<std::int32_t>(double{c[i]} * units[i]);
        c[i] = cut_to_float((of_c + sums[i]) * two_to(top[i] - fraction));
    }
}

// c + the products [begin, end) as IEEE has it, where infinities or NaNs are among them.
template <std::size_t begin, std::size_t end>
void add_not_finite(const std::uint16_t (&a)[kTerms], const std::uint16_t (&b)[kTerms], float c,
                    float& result) {
    double sum = double{c};
    for (std::size_t k = begin; k < end; ++k) sum += double{float_of(a[k])} * double{float_of(b[k])};
    if (std::isnan(sum)) result = std::bit_cast<float>(0x7fffffffu);
    if (std::isinf(sum)) result = static_cast<float>(sum);
}

struct Operands {
    const std::uint16_t (&a)[kRows][kTerms];
    const std::uint16_t (&b)[kColumns][kTerms];
    A rows;
    B columns;
};

template <std::size_t begin, std::size_t end, int fraction>
void add_products(const Operands& of, float (&c)[kRows][kColumns]) {
    for (std::size_t row = 0; row < kRows; ++row) {
        float sums[kColumns], nothing = 0;
        for (std::size_t i = 0; i < kColumns; ++i) nothing += c[row][i] * 0;  // NaN where one is not finite
        const bool finite = of.rows.finite && of.columns.finite && nothing == 0;
        for (std::size_t i = 0; i < kColumns; ++i)
            sums[i] = finite || std::isfinite(c[row][i]) ? c[row][i] : 0;
        add_to_row<begin, end, fraction>(of.rows, row, of.columns, sums);
        for (std::size_t i = 0; i < kColumns && !finite; ++i)
            add_not_finite<begin, end>(of.a[row], of.b[i], c[row][i], sums[i]);
        std::copy_n(sums, kColumns, c[row]);
    }
}

}  // namespace

void set_tensor_core(TensorCore which) {
    tensor_core = which;
}

[[gnu::flatten]] TANDEM_CLONES void tensor_core_product(const std::uint16_t (&a)[16][16],
                                                        const std::uint16_t (&b)[8][16], float (&c)[16][8]) {
    std::uint16_t across[kTerms][kColumns];
    for (std::size_t k = 0; k < kTerms; ++k) {
        for (std::size_t column = 0; column < kColumns; ++column) across[k][column] = b[column][k];
    }
    const Operands of{a, b, A(a), B(across)};
    if (tensor_core == TensorCore::hopper) {
        add_products<0, 16, 25>(of, c);
    } else {
        add_products<0, 8, 24>(of, c);
        add_products<8, 16, 24>(of, c);
    }
}

}  // namespace fibers
