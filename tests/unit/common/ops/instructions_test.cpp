// The instructions of common/ops/cuda/instructions.cuh as the host does them. Compiled like the kernels, with
// instrumentation.
#include "common/ops/cuda/instructions.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/ops/shared/bits.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/tensor_core.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Kernel>
std::string told(const Kernel& kernel, int threads = 32, std::size_t shared_bytes = 0) {
    try {
        fibers::run_blocks(1, threads, shared_bytes, kernel);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

std::uint32_t pair_of(float first, float second) {
    return shared::bfloat16_bits(first) | std::uint32_t{shared::bfloat16_bits(second)} << 16;
}

// --- products ---

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
    EXPECT_THAT(told([&] { product_kernel(&m); }), IsEmpty());
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

// --- matrices out of shared memory ---

constexpr int kRows = 32, kColumns = 64;  // a tile of bfloat16

// A tile of numbers row · 64 + column as bits, its chunks of 16 bytes swizzled or not.
SharedAddress chunk_of(const unsigned char* tile, unsigned row, unsigned chunk, bool swizzled) {
    return shared_address(tile) + row * 2 * kColumns + 16 * (swizzled ? chunk ^ row % 8 : chunk);
}
void write_tile(unsigned char* tile, bool swizzled) {
    for (unsigned column = 0; column < kColumns; ++column) {
        const auto bits = static_cast<std::uint16_t>(threadIdx.x * kColumns + column);
        auto* const chunk =
            reinterpret_cast<std::uint16_t*>(chunk_of(tile, threadIdx.x, column / 8, swizzled));
        chunk[column % 8] = bits;
    }
}
constexpr std::size_t kTileBytes = kRows * kColumns * 2 + 1024;
unsigned char* aligned_tile(unsigned char* memory) {
    return memory + (1024 - reinterpret_cast<std::uintptr_t>(memory) % 1024) % 1024;
}

std::uint32_t numbers(unsigned row, unsigned column, unsigned next_row, unsigned next_column) {
    return (row * kColumns + column) | (next_row * kColumns + next_column) << 16;
}

TEST(MatrixLoads, GiveTheOperandsOfProducts) {
    const unsigned r0 = 16, k0 = 32;
    std::uint32_t as_a[32][4], as_b[32][4], as_weights[32][4];
    EXPECT_THAT(told(
                    [&] {
                        TANDEM_DYNAMIC_SHARED(memory);
                        unsigned char* const tile = aligned_tile(memory);
                        write_tile(tile, true);
                        __syncthreads();
                        const unsigned lane = threadIdx.x;
                        const auto at = [&](unsigned row, unsigned chunk) {
                            return chunk_of(tile, r0 + row, k0 / 8 + chunk, true);
                        };
                        load_matrices(as_a[lane], at(lane % 16, lane / 16));
                        load_matrices(as_b[lane], at(lane % 8 + 8 * (lane / 16), lane / 8 % 2));
                        load_matrices_transposed(as_weights[lane], at(lane % 16, lane / 16));
                    },
                    32, kTileBytes),
                IsEmpty());
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        // Neighbours along the row, of a tile that begins at r0, k0.
        const auto along = [&](unsigned row, unsigned column) {
            return numbers(r0 + row, k0 + column, r0 + row, k0 + column + 1);
        };
        const auto down = [&](unsigned row, unsigned column) {
            return numbers(r0 + row, k0 + column, r0 + row + 1, k0 + column);
        };
        for (unsigned i = 0; i < 4; ++i) {
            EXPECT_EQ(as_a[lane][i], along(g + 8 * (i % 2), 2 * t + 8 * (i / 2))) << lane << ' ' << i;
            EXPECT_EQ(as_b[lane][i], along(g + 8 * (i / 2), 2 * t + 8 * (i % 2))) << lane << ' ' << i;
            EXPECT_EQ(as_weights[lane][i], down(2 * t + 8 * (i % 2), g + 8 * (i / 2))) << lane << ' ' << i;
        }
    }
}

TEST(MatrixLoads, CountBankConflicts) {
    const auto conflicts = [](bool swizzled, unsigned rows, bool transposed) {
        fibers::take_counts();
        EXPECT_THAT(told(
                        [=] {
                            TANDEM_DYNAMIC_SHARED(memory);
                            unsigned char* const tile = aligned_tile(memory);
                            write_tile(tile, swizzled);
                            __syncthreads();
                            std::uint32_t r[4];
                            const SharedAddress row = chunk_of(tile, threadIdx.x % rows, 3, swizzled);
                            if (transposed) {
                                load_matrices_transposed(r, row);
                            } else {
                                load_matrices(r, row);
                            }
                        },
                        32, kTileBytes),
                    IsEmpty());
        const fibers::Counts counts = fibers::take_counts();
        EXPECT_EQ(counts.matrix_loads, 1);
        EXPECT_EQ(counts.products, 0);
        return counts.bank_conflicts;
    };
    EXPECT_EQ(conflicts(true, 32, false), 0);
    EXPECT_EQ(conflicts(false, 32, false), 4 * 7);
    EXPECT_EQ(conflicts(false, 32, true), 4 * 7);
    EXPECT_EQ(conflicts(false, 1, false), 0);  // one row for all: read once
    EXPECT_EQ(conflicts(false, 2, false), 4);
}

TEST(MatrixLoads, AreReadsOfTheirRows) {
    const auto load = [](bool writes, bool barrier, unsigned beside) {
        return told(
            [=] {
                TANDEM_DYNAMIC_SHARED(memory);
                unsigned char* const tile = aligned_tile(memory);
                if (writes) write_tile(tile, true);
                if (barrier) __syncwarp();
                std::uint32_t r[4];
                load_matrices(r, chunk_of(tile, 31 - threadIdx.x, 0, true) + beside);
            },
            32, kTileBytes);
    };
    EXPECT_THAT(load(true, true, 0), IsEmpty());
    EXPECT_THAT(load(true, false, 0), HasSubstr("nothing between that orders them"));
    EXPECT_THAT(load(false, true, 0), HasSubstr("which the block has not written"));
    EXPECT_THAT(load(true, true, 8), HasSubstr("no multiple of 16"));
    EXPECT_THAT(load(true, true, 1 << 20), HasSubstr("not in shared memory"));
}

// --- 2^x ---

TEST(FastExp2, IsCloseAndExactForWholeNumbers) {
    for (int n = -126; n < 128; ++n) EXPECT_EQ(fast_exp2(static_cast<float>(n)), std::ldexp(1.0f, n));
    for (float x = -126.0f; x < 128.0f; x += 0.0371f) {
        const double wanted = std::exp2(double{x});
        EXPECT_NEAR(fast_exp2(x), wanted, 2.5e-7 * wanted) << x;
    }
    EXPECT_EQ(fast_exp2(-kInfinity), 0.0f);
    EXPECT_EQ(fast_exp2(-126.5f), 0.0f);
    EXPECT_EQ(fast_exp2(128.0f), kInfinity);
    EXPECT_TRUE(std::isnan(fast_exp2(std::nanf(""))));
}

}  // namespace
}  // namespace tandem::ops::on_host
