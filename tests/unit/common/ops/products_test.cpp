// The tensor core's products as the host does them, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "common/ops/cuda/instructions.cuh"
#include "common/ops/shared/bits.h"
#include "tests/support/tensor_core.h"

namespace tandem::ops::on_host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t pair_of(float first, float second) {
    return shared::bfloat16_bits(first) | std::uint32_t{shared::bfloat16_bits(second)} << 16;
}

using Row = std::array<float, 16>;
struct Matrices {
    std::array<Row, 16> a{};  // [row][k]
    std::array<Row, 8> b{};   // [column][k]
    std::array<std::array<float, 8>, 16> c{};
};

__global__ void product_kernel(Matrices* m) {
    const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const auto a_pair = [&](unsigned row, unsigned k) { return pair_of(m->a[row][k], m->a[row][k + 1]); };
    const std::uint32_t a[4] = {a_pair(g, 2 * t), a_pair(g + 8, 2 * t), a_pair(g, 2 * t + 8),
                                a_pair(g + 8, 2 * t + 8)};
    const std::uint32_t b[2] = {pair_of(m->b[g][2 * t], m->b[g][2 * t + 1]),
                                pair_of(m->b[g][2 * t + 8], m->b[g][2 * t + 9])};
    float c[4];
    for (unsigned i = 0; i < 4; ++i) c[i] = m->c[g + 8 * (i / 2)][2 * t + i % 2];
    multiply(c, a, b);
    for (unsigned i = 0; i < 4; ++i) m->c[g + 8 * (i / 2)][2 * t + i % 2] = c[i];
}

void multiply_on_host(Matrices& m) {
    fibers::run_blocks(1, 32, 0, [&] { product_kernel(&m); });
}

// Rounded to bfloat16, of many magnitudes.
void fill_at_random(Matrices& m, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto any = [&] {
        const float value = std::ldexp(normal(generator), static_cast<int>(generator() % 9) - 4);
        return shared::float_of_bfloat16(shared::bfloat16_bits(value));
    };
    for (Row& row : m.a)
        for (float& x : row) x = any();
    for (Row& column : m.b)
        for (float& x : column) x = any();
    for (auto& row : m.c)
        for (float& x : row) x = normal(generator);
}

class Products : public ::testing::TestWithParam<fibers::TensorCore> {
  protected:
    Products() { fibers::set_tensor_core(GetParam()); }
    ~Products() override { fibers::set_tensor_core(fibers::TensorCore::hopper); }
};

TEST_P(Products, AreCloseToExactSums) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        Matrices m;
        fill_at_random(m, seed);
        const Matrices before = m;
        multiply_on_host(m);
        for (std::size_t row = 0; row < 16; ++row) {
            for (std::size_t column = 0; column < 8; ++column) {
                double exact = before.c[row][column], largest = std::fabs(exact);
                for (std::size_t k = 0; k < 16; ++k) {
                    const double term = double{m.a[row][k]} * m.b[column][k];
                    exact += term;
                    largest = std::fmax(largest, std::fabs(term));
                }
                // Seventeen terms lose less than 2^-24 of twice the largest each, twice on an A100.
                const double most = 36 * std::ldexp(largest, -23) + std::ldexp(std::fabs(exact), -22);
                EXPECT_NEAR(m.c[row][column], exact, most) << row << ' ' << column;
            }
        }
    }
}

// The order of the terms within a product is nothing on Hopper, and that of each half on others.
TEST_P(Products, DoNotDependOnTheOrderOfTerms) {
    Matrices m;
    fill_at_random(m, 1);
    Matrices turned = m;
    const bool halves = GetParam() == fibers::TensorCore::ampere;
    for (std::size_t k = 0; k < 16; ++k) {
        const std::size_t other = halves ? 8 * (k / 8) + (k * 3 + 1) % 8 : (k * 5 + 3) % 16;
        for (std::size_t row = 0; row < 16; ++row) turned.a[row][k] = m.a[row][other];
        for (std::size_t column = 0; column < 8; ++column) turned.b[column][k] = m.b[column][other];
    }
    multiply_on_host(m);
    multiply_on_host(turned);
    EXPECT_EQ(m.c, turned.c);
    Matrices none;
    fill_at_random(none, 1);
    EXPECT_NE(m.c, none.c);
}

TEST_P(Products, OfZerosLeaveTheSumAsItIs) {
    Matrices m;
    fill_at_random(m, 2);
    for (std::size_t row = 0; row < 16; ++row) m.a[row] = {};
    for (std::size_t row = 0; row < 16; row += 2)
        for (float& x : m.a[row]) x = -0.0f;
    m.c[3][3] = std::ldexp(1.0f, -140);
    const auto before = m.c;
    m.c[5][5] = -0.0f;
    multiply_on_host(m);
    EXPECT_EQ(shared::bits_of(m.c[5][5]), 0u);
    m.c[5][5] = before[5][5];
    EXPECT_EQ(m.c, before);
}

TEST_P(Products, OfWhatIsNotFinite) {
    Matrices m;
    m.a[0][3] = kInfinity, m.a[1][3] = kInfinity, m.a[1][12] = -kInfinity, m.a[2][0] = std::nanf(""),
    m.a[3][0] = std::ldexp(1.0f, 100);
    for (std::size_t k : {0U, 3U, 12U})
        m.b[0][k] = 1.0f, m.b[1][k] = 0.0f, m.b[2][k] = std::ldexp(-1.0f, 100);
    m.c[4][0] = -kInfinity;
    multiply_on_host(m);
    EXPECT_EQ(m.c[0][0], kInfinity);
    EXPECT_EQ(shared::bits_of(m.c[0][1]), 0x7fffffffu);  // 0 · infinity
    EXPECT_EQ(m.c[0][2], -kInfinity);
    EXPECT_EQ(shared::bits_of(m.c[1][0]), 0x7fffffffu);  // infinity - infinity
    EXPECT_EQ(shared::bits_of(m.c[2][0]), 0x7fffffffu);
    EXPECT_EQ(m.c[3][2], -kInfinity);  // too large
    EXPECT_EQ(m.c[4][0], -kInfinity);
    EXPECT_EQ(m.c[5][0], 0.0f);
}

TEST_P(Products, OfDenormals) {
    Matrices m;
    m.a[0][0] = std::ldexp(1.0f, -133), m.b[0][0] = std::ldexp(1.0f, 120);  // the smallest there is
    m.a[1][0] = std::ldexp(3.0f, -76), m.b[1][0] = std::ldexp(-1.0f, -74);  // -1.5 of the smallest result
    multiply_on_host(m);
    EXPECT_EQ(m.c[0][0], std::ldexp(1.0f, -13));
    EXPECT_EQ(m.c[1][1], std::ldexp(-1.0f, -149));
    EXPECT_EQ(m.c[0][1], std::ldexp(1.0f, -133) * std::ldexp(-1.0f, -74));
}

INSTANTIATE_TEST_SUITE_P(Both, Products,
                         ::testing::Values(fibers::TensorCore::hopper, fibers::TensorCore::ampere));

// Sums by hand: c and products at places of k, and what comes out.
struct Golden {
    const char* what;
    float c;
    std::vector<std::pair<std::size_t, float>> products;  // exact as two bfloat16 factors: powers of two
    float hopper, ampere;
};

TEST(ProductsBitByBit, CutOffWhereTheHardwareDoes) {
    const auto two = [](int n) { return std::ldexp(1.0f, n); };
    const std::vector<Golden> cases = {
        {"25 bits below the largest count, 24 on Ampere",
         1,
         {{0, two(-25)}, {1, two(-25)}, {2, two(-25)}, {3, two(-25)}},
         1 + two(-23),
         1},
        {"26 bits below do not",
         1,
         {{0, two(-26)},
          {1, two(-26)},
          {2, two(-26)},
          {3, two(-26)},
          {4, two(-26)},
          {5, two(-26)},
          {6, two(-26)},
          {7, two(-26)}},
         1,
         1},
        {"24 bits below count on both", 1, {{0, two(-24)}, {1, two(-24)}}, 1 + two(-23), 1 + two(-23)},
        {"the result is cut off, not rounded", 1, {{0, two(-24)}}, 1, 1},
        {"towards zero", -1, {{0, -two(-24)}}, -1, -1},
        {"what is taken from 1 leaves the number below", 1, {{0, -two(-25)}}, 1 - two(-24), 1},
        {"negative terms are cut off towards zero too", 1, {{0, -two(-26)}}, 1, 1},
        {"halves one after the other keep what one sum loses",
         0,
         {{0, two(26)}, {1, -two(26)}, {8, 1}},
         0,
         1},
        {"within a half it is lost", 0, {{0, two(26)}, {1, -two(26)}, {2, 1}}, 0, 0},
        {"and on Hopper one bit later", 0, {{0, two(25)}, {1, -two(25)}, {2, 1}}, 1, 0},
        {"c is a term like others", two(26), {{0, -two(26)}, {8, 1}}, 0, 1},
        {"exact sums past the largest",
         0,
         {{0, two(3)}, {1, two(3)}, {9, two(3)}, {15, two(-18)}},
         24 + two(-18),
         24 + two(-18)},
    };
    for (const auto core : {fibers::TensorCore::hopper, fibers::TensorCore::ampere}) {
        fibers::set_tensor_core(core);
        for (const Golden& golden : cases) {
            Matrices m;
            m.c[9][5] = golden.c;
            for (const auto& [k, product] : golden.products) {
                const int exponent = std::ilogb(product);
                m.a[9][k] = std::ldexp(std::copysign(1.0f, product), exponent / 2);
                m.b[5][k] = two(exponent - exponent / 2);
            }
            multiply_on_host(m);
            EXPECT_EQ(m.c[9][5], core == fibers::TensorCore::hopper ? golden.hopper : golden.ampere)
                << golden.what << (core == fibers::TensorCore::hopper ? ", Hopper" : ", Ampere");
        }
    }
    fibers::set_tensor_core(fibers::TensorCore::hopper);
}

// Sums of products so small that c, which is zero, cuts them: what an H100 gave (tests/gpu/attention).
TEST(TensorCore, SmallSumsAreTheGpus) {
    struct Measured {
        std::uint16_t a[16], b[16];
        std::uint32_t sum;
    };
    const Measured all[] = {
        {{0x16b6, 0x98b1, 0x194e, 0x9699, 0x1787, 0x975e, 0x974c, 0x960e, 0x1aff, 0x1c9e, 0x9d0a, 0x99c5,
          0x9719, 0x1bfc, 0x9e01, 0x18ae},
         {0x1873, 0x1d11, 0x9d1d, 0x1c91, 0x98d0, 0x9cc0, 0x9d1f, 0x1ac6, 0x9c22, 0x1cb9, 0x990d, 0x97a4,
          0x980a, 0x1da1, 0x181c, 0x9702},
         0x00000848},
        {{0x16b6, 0x98b1, 0x194e, 0x9699, 0x1787, 0x975e, 0x974c, 0x960e, 0x1aff, 0x1c9e, 0x9d0a, 0x99c5,
          0x9719, 0x1bfc, 0x9e01, 0x18ae},
         {0x9db3, 0x9d4f, 0x98bf, 0x9e5e, 0x1934, 0x9527, 0x9bfa, 0x98dc, 0x9c5d, 0x1b22, 0x1d1b, 0x99ae,
          0x1b2e, 0x998b, 0x1b10, 0x1b01},
         0x80000c82},
        {{0x0000, 0x321d, 0x816f, 0x1e04, 0x3212, 0xb23c, 0x802a, 0xb26d, 0x0000, 0x3220, 0x8167, 0x3207,
          0x0000, 0x0049, 0x326b, 0x8078},
         {0x0000, 0x00f8, 0x8175, 0x0000, 0x8176, 0x014b, 0x817f, 0x8000, 0x0148, 0x8158, 0x0000, 0x815b,
          0x8000, 0x8012, 0x806a, 0x005f},
         0x00000000},
        {{0x80a0, 0x00c9, 0xb25f, 0x000d, 0xb233, 0x8041, 0xb219, 0x0000, 0x3222, 0x80b0, 0xb209, 0x80f1,
          0x321c, 0x8000, 0x8000, 0x3251},
         {0x0000, 0x817a, 0x0168, 0x8130, 0x001a, 0x8000, 0x0176, 0x8049, 0x000d, 0x8068, 0x017c, 0x0033,
          0x80a0, 0x0000, 0x0108, 0x0000},
         0x80000001},
        {{0x1e28, 0x8000, 0x00f8, 0x9e74, 0x8000, 0x1e54, 0x8055, 0x8019, 0x00d4, 0x015d, 0x8108, 0x9e6c,
          0x9e30, 0x006e, 0x803b, 0x002f},
         {0x0000, 0x3f93, 0x8000, 0x8000, 0xbf87, 0x0000, 0x002a, 0x3254, 0x8155, 0x0000, 0x813f, 0x9e1f,
          0x9e17, 0x00c5, 0x0000, 0x0000},
         0x0001f4c7},
    };
    for (const Measured& measured : all) {
        std::uint16_t a[16][16] = {}, b[8][16] = {};
        float c[16][8] = {};
        std::copy(std::begin(measured.a), std::end(measured.a), a[9]);
        std::copy(std::begin(measured.b), std::end(measured.b), b[5]);
        fibers::tensor_core_product(a, b, c);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(c[9][5]), measured.sum);
    }
}

TEST(TensorCore, AZeroBesideALargeNumberCutsNothing) {
    std::uint16_t a[16][16] = {}, b[8][16] = {};
    float c[16][8] = {};
    b[5][3] = shared::bfloat16_bits(std::ldexp(1.0f, 126));
    c[9][5] = std::ldexp(1.5f, -140);
    fibers::tensor_core_product(a, b, c);
    EXPECT_EQ(c[9][5], std::ldexp(1.5f, -140));
}

}  // namespace
}  // namespace tandem::ops::on_host
