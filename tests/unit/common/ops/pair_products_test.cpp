// Our products of rows of bfloat16 by a packed side: plain C++ against fp64, the instructions against plain C++,
// and oneDNN against both, bit for bit.
#include "common/ops/cpu/pair_products.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <typeinfo>
#include <vector>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/product_library.h"
#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/pair_products_here.h"
#include "tests/unit/common/ops/pair_products_rig.h"

namespace tandem {
namespace {

using namespace ops::detail;
using namespace testing;

TEST(PairProducts, AgainstFp64) {
    std::mt19937 generator(1);
    for (const std::int64_t columns : {16, 32, 48, 64}) {
        for (const auto& [rows, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                         {2, 16, 7},
                                         {5, 70, 33},
                                         {7, 64, 64},
                                         {16, 130, 290},
                                         {11, 47, 129},
                                         {17, 130, 290},
                                         {64, 70, 1100}}) {
            const Sides s = draw_sides(generator, rows, n, k, Values::normal);
            const std::vector<float> c = multiplied(kPairProductsEmulated, s, columns);
            for (std::int64_t i = 0; i < rows; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    double wanted = 0, size = 0;
                    for (std::int64_t l = 0; l < k; ++l) {
                        const double product =
                            double{wide_number(s.a, i * k + l)} * wide_number(s.b, j * k + l);
                        wanted += product;
                        size += std::abs(product);
                    }
                    ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], wanted, 1e-6 * size + 1e-30)
                        << rows << " rows, n " << n << ", k " << k << ", blocks of " << columns;
                }
            }
        }
    }
}

TEST(PairProducts, ReadNothingOfARowButItsNumbers) {
    std::mt19937 generator(2);
    const Sides s = draw_sides(generator, 3, 20, 35, Values::normal);
    Sides followed = s;
    followed.rows = 1;
    followed.a.assign(s.a.begin(), s.a.begin() + 35);
    const std::vector<float> wanted = multiplied(kPairProductsEmulated, followed, 32);
    Sides infinite = s;
    std::fill(infinite.a.begin() + 35, infinite.a.end(), std::uint16_t{0x7f80});
    std::vector<float> got = multiplied(kPairProductsEmulated, infinite, 32);
    got.resize(20);
    expect_same(got, wanted, "a row before infinite ones");
}

TEST(PairProducts, OfThisMachineAreThoseOfPlainCpp) {
    if (!kPairProducts.runs_here()) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    std::mt19937 generator(3);
    for (const Values kind : kEveryKind) {
        for (const std::int64_t columns : {16, 32, 48, 64}) {
            for (const std::int64_t rows :
                 {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 25, 33, 64, 65}) {
                const auto n = static_cast<std::int64_t>(1 + generator() % 150),
                           k = static_cast<std::int64_t>(1 + generator() % 300);
                const Sides s = draw_sides(generator, rows, n, k, kind);
                expect_same(multiplied(kPairProducts, s, columns),
                            multiplied(kPairProductsEmulated, s, columns),
                            fmt::format("kind {}, {} rows, n {}, k {}, blocks of {}", static_cast<int>(kind),
                                        rows, n, k, columns));
                if (HasFatalFailure()) return;
            }
        }
    }
}

// Whatever the panels: those of few rows are shorter than those of many, and both than the chain.
TEST(PairProducts, ARowIsTheSameAmongFewAndMany) {
    std::mt19937 generator(5);
    for (const std::int64_t chain : {128, 384, 1024, 1536, 1 << 30}) {
        for (const std::int64_t k : {100, 1024, 1091, 2176}) {
            const Sides many = draw_sides(generator, 40, 20, k, Values::cancelling);
            Sides few = many;
            few.rows = 7;
            few.a.resize(static_cast<std::size_t>(few.rows * k));
            std::vector<float> wanted = multiplied(kPairProductsEmulated, many, 16, chain);
            wanted.resize(static_cast<std::size_t>(few.rows * few.n));
            expect_same(multiplied(kPairProductsEmulated, few, 16, chain), wanted,
                        fmt::format("k {}, chains of {}", k, chain));
            if (HasFatalFailure()) return;
        }
    }
}

// Rows further apart than they are long, with a bias, in both dtypes: the plain sums, then what they become one by one.
TEST(PairProducts, EndWhereTheyAreSent) {
    std::mt19937 generator(6);
    for (const PairProducts& kernels :
         {kPairProductsEmulated, kPairProducts, kWidenedProducts, kWidenedProductsAvx2}) {
        if (kernels.runs_here != nullptr && !kernels.runs_here()) continue;
        const std::int64_t columns = most_columns(kernels);
        for (const Values kind : kEveryKind) {
            for (const auto& [rows, n, k] :
                 {std::array<std::int64_t, 3>{3, 70, 33}, {17, 7, 300}, {64, 129, 640}}) {
                const Sides s = draw_sides(generator, rows, n, k, kind);
                const std::vector<float> sums = multiplied(kernels, s, columns, 512);
                const Lines packed = packed_in_blocks(s, columns);
                const std::vector<float> wide_a = widened(s.a);
                std::vector<float> bias(static_cast<std::size_t>(n));
                for (float& x : bias) x = std::normal_distribution<float>()(generator);
                const std::int64_t c_row = n + 5;
                std::vector<float> wide(static_cast<std::size_t>(rows * c_row), 7.0f), wanted = wide;
                Halves rounded(wide.size(), 0x40e0), wanted_rounded = rounded;
                PairProduct product{
                    .rows = rows,
                    .n = n,
                    .k = k,
                    .columns = columns,
                    .chain = 512,
                    .a = multiplies_float32(kernels) ? static_cast<const void*>(wide_a.data()) : s.a.data(),
                    .b = packed.data(),
                    .bias = bias.data(),
                    .c = wide.data(),
                    .rounded_c = nullptr,
                    .c_row = c_row};
                kernels.multiply(product);
                product.bias = nullptr;
                product.c = nullptr;
                product.rounded_c = rounded.data();
                kernels.multiply(product);
                for (std::int64_t i = 0; i < rows * n; ++i) {
                    const auto from = static_cast<std::size_t>(i),
                               to = static_cast<std::size_t>(i / n * c_row + i % n);
                    wanted[to] = sums[from] + bias[static_cast<std::size_t>(i % n)];
                    wanted_rounded[to] = ops::shared::bfloat16_bits(sums[from]);
                }
                expect_same(wide, wanted, fmt::format("{} rows, n {}", rows, n));
                EXPECT_EQ(rounded, wanted_rounded) << rows << " rows, n " << n;
            }
        }
    }
}

Lines packed_by(const ProductLibrary& library, const Sides& s) {
    Lines packed(library.packed_bytes(s.n, s.k, DType::bfloat16));
    library.pack(columns_of(s), s.k, reinterpret_cast<const std::byte*>(s.b.data()), packed.data());
    return packed;
}

// c by the library's kernels for `at_once` rows; the last may repeat some.
std::vector<float> by_library(const ProductLibrary& library, const Sides& s, std::int64_t at_once) {
    const RightSide side{s.n, s.k, DType::bfloat16, WeightLayout::packed};
    const Lines packed = packed_by(library, s);
    ProductKernel* const kernel = product_kernel(library, {at_once, false, side, false, DType::float32, 1});
    std::vector<float> c(static_cast<std::size_t>(s.rows * s.n));
    for (std::int64_t next = 0; next < s.rows; next += at_once) {
        const std::int64_t row = std::min(next, s.rows - at_once);
        kernel->run(reinterpret_cast<const std::byte*>(s.a.data() + row * s.k), packed.data(),
                    reinterpret_cast<std::byte*>(c.data() + row * s.n));
    }
    return c;
}

class BesideOneDnn : public ::testing::TestWithParam<Values> {};

TEST_P(BesideOneDnn, BitsAreTheSame) {
    std::mt19937 generator(4);
    const std::int64_t shapes[][2] = {{576, 576}, {192, 576},  {256, 1536}, {64, 64},
                                      {20, 48},   {16, 33},    {3, 17},     {100, 1},
                                      {70, 291},  {129, 1000}, {64, 1537},  {40, 2500}};
    for (const auto& [n, k] : shapes) {
        if (onednn().packed_bytes(n, k, DType::bfloat16) == 0)
            GTEST_SKIP() << "oneDNN packs no bfloat16 here";
        const bool large = n * k > 50'000;
        for (std::int64_t rows = 1; rows <= 64; rows += large ? 7 : 1) {
            const Sides s = draw_sides(generator, rows, n, k, GetParam());
            const std::vector<float> wanted = by_library(onednn(), s, rows);
            for (const std::int64_t at_once :
                 {std::min(rows, std::int64_t{3}), std::min(rows, kMostPairRows)}) {
                expect_same(by_library(machine_products(), s, at_once), wanted,
                            fmt::format("{} of {} rows, n {}, k {}", at_once, rows, n, k));
                if (HasFatalFailure()) return;
            }
        }
    }
}

// A side whose sums are one chain in any version of oneDNN: ours multiply up to 64 rows of it.
TEST(PairProducts, HaveTheirPlace) {
    if (!kPairProducts.runs_here() || onednn_tile_columns(64, 64, DType::bfloat16) == 0)
        GTEST_SKIP() << "oneDNN has no products by AVX512-BF16 here";
    const RightSide side{64, 64, DType::bfloat16, WeightLayout::packed};
    for (const std::int64_t rows : {1, 2, 16, 64, 65}) {
        const Product product{rows, false, side, false, DType::float32, 1};
        const std::unique_ptr<ProductKernel> library = onednn().make(product);
        const std::unique_ptr<ProductKernel> chosen = machine_products().make(product);
        const ProductKernel &of_library = *library, &of_choice = *chosen;
        EXPECT_EQ(typeid(of_choice) == typeid(of_library), rows > kMostPairRows) << rows;
    }
}

INSTANTIATE_TEST_SUITE_P(Values, BesideOneDnn, ::testing::ValuesIn(kEveryKind));

}  // namespace
}  // namespace tandem
