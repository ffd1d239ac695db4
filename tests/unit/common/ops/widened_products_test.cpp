// Our products by a side that is packed in bfloat16 and widened for float32 products: one sum after another, and
// oneDNN's bits.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/pair_kernel.h"
#include "common/ops/cpu/product_library.h"
#include "tests/unit/common/ops/pair_products_here.h"
#include "tests/unit/common/ops/pair_products_rig.h"

namespace tandem {
namespace {

using namespace ops::detail;
using namespace testing;

// a [rows, k], b [n, k]
struct WideSides {
    std::int64_t rows, n, k;
    std::vector<float> a, b;
};

WideSides wide_sides(const Sides& s) {
    return {s.rows, s.n, s.k, widened(s.a), widened(s.b)};
}

// What kWidenedProducts says of its bits, one number at a time.
std::vector<float> sums_in_order(const WideSides& s, std::int64_t chain) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t j = 0; j < s.n; ++j) {
            float total = 0;
            for (std::int64_t begin = 0; begin < s.k; begin += chain) {
                float sum = 0;
                for (std::int64_t l = begin; l < std::min(s.k, begin + chain); ++l)
                    sum = std::fma(s.a[static_cast<std::size_t>(i * s.k + l)],
                                   s.b[static_cast<std::size_t>(j * s.k + l)], sum);
                total = begin == 0 ? sum : total + sum;
            }
            result.push_back(total);
        }
    }
    return result;
}

TEST(WidenedProducts, AddOneNumberOfKAfterAnother) {
    std::mt19937 generator(7);
    for (const PairProducts& kernels : {kWidenedProductsEmulated, kWidenedProducts, kWidenedProductsAvx2}) {
        if (kernels.runs_here != nullptr && !kernels.runs_here()) continue;
        for (const Values kind : kEveryKind) {
            for (const std::int64_t columns : {16, 32, 48, 64}) {
                if (columns > most_columns(kernels)) continue;
                for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 16, 17, 25, 33, 64}) {
                    const auto n = static_cast<std::int64_t>(1 + generator() % 150),
                               k = static_cast<std::int64_t>(1 + generator() % 300);
                    const std::int64_t chain = generator() % 2 == 0 ? 128 : kOneChain;
                    const Sides s = draw_sides(generator, rows, n, k, kind);
                    expect_same(multiplied(kernels, s, columns, chain), sums_in_order(wide_sides(s), chain),
                                fmt::format("kind {}, {} rows, n {}, k {}, blocks of {}, chains of {}",
                                            static_cast<int>(kind), rows, n, k, columns, chain));
                    if (HasFatalFailure()) return;
                }
            }
        }
    }
}

// As oneDNN's usual sizes, and those of which blocks and panels leave a part.
constexpr std::array<std::int64_t, 2> kShapes[] = {{576, 400}, {192, 576}, {64, 64},    {20, 48},
                                                   {3, 17},    {100, 1},   {129, 1000}, {40, 2500}};

const std::byte* bytes_of(const std::vector<float>& from) {
    return reinterpret_cast<const std::byte*>(from.data());
}

std::vector<float> rows_by(ProductKernel& kernel, std::int64_t rows, const WideSides& s,
                           const Lines& packed) {
    std::vector<float> c(static_cast<std::size_t>(rows * s.n) + 1, 7.0f);
    kernel.run_to(rows, bytes_of(s.a), packed.data(),
                  {reinterpret_cast<std::byte*>(c.data()), s.n, DType::float32, nullptr});
    EXPECT_EQ(c.back(), 7.0f) << "writes past the last row";
    c.pop_back();
    return c;
}

// By a side of float32, and one in pairs.
TEST(Avx2Products, AddOneNumberOfKAfterAnother) {
    if (!kFloatProducts.runs_here()) GTEST_SKIP() << "this CPU has no AVX2";
    const ProductLibrary& library = avx2_products();
    std::mt19937 generator(10);
    std::normal_distribution<float> normal;
    for (const auto& [n, k] : kShapes) {
        for (const std::int64_t rows : {1, 5, 13, 16, 64}) {
            SCOPED_TRACE(fmt::format("{} rows, n {}, k {}", rows, n, k));
            WideSides s = wide_sides(draw_sides(generator, rows, n, k, Values::cancelling));
            const Sides narrow = draw_sides(generator, 0, n, k, Values::cancelling);
            for (float& x : s.a) x *= normal(generator);  // all bits of a float32
            for (float& x : s.b) x *= normal(generator);
            Lines packed(library.packed_bytes(n, k, DType::float32));
            library.pack({n, k, DType::float32, WeightLayout::columns}, k, bytes_of(s.b), packed.data());
            const auto kernel_of = [&, n = n, k = k](WeightLayout layout) {
                return product_kernel(library,
                                      {64, false, {n, k, DType::float32, layout}, false, DType::float32, 1});
            };
            expect_same(rows_by(*kernel_of(WeightLayout::packed), rows, s, packed),
                        sums_in_order(s, kOneChain), "packed");
            s.b = widened(narrow.b);
            expect_same(rows_by(*kernel_of(WeightLayout::pairs), rows, s,
                                packed_in_blocks(narrow, library.tile_columns(n, k))),
                        sums_in_order(s, kOneChain), "in pairs");
            if (HasFatalFailure()) return;
        }
    }
}

// Of float32, from what bfloat16 was packed to: what pack_tiles makes of the same numbers in float32.
TEST(PackTiles, WidenToWhatFloat32IsPackedTo) {
    std::mt19937 generator(8);
    for (const std::int64_t columns : {16, 32, 48, 64}) {
        for (int round = 0; round < 12; ++round) {
            const auto n = static_cast<std::int64_t>(1 + generator() % 150),
                       k = static_cast<std::int64_t>(1 + generator() % 100);
            const Sides s{0, n, k, {}, draw(generator, n * k, Values::any)};
            const std::vector<float> wide = widened(s.b);
            const std::size_t bytes = float_tiles_bytes(n, k, columns);
            Lines wanted(bytes), got(bytes + 64);
            std::memset(got.data(), 0x5a, got.bytes());
            pack_tiles({n, k, DType::float32, WeightLayout::columns}, k, columns,
                       reinterpret_cast<const std::byte*>(wide.data()), wanted.data());
            widen_tiles(n, k, columns, packed_in_blocks(s, columns).data(),
                        reinterpret_cast<float*>(got.data()));
            ASSERT_EQ(std::memcmp(got.data(), wanted.data(), bytes), 0) << "n " << n << ", k " << k;
            ASSERT_EQ(got.data()[bytes], std::byte{0x5a}) << "writes past the last block";
        }
    }
}

class WidenedBesideOneDnn : public ::testing::TestWithParam<Values> {};

// Where oneDNN packs float32 in tiles, a side in pairs has its bits, whatever it holds.
TEST_P(WidenedBesideOneDnn, BitsAreTheSame) {
    if (!kWidenedProducts.runs_here() || onednn_tile_columns(64, 64, DType::float32) == 0)
        GTEST_SKIP() << "oneDNN packs no float32 in tiles here, or this CPU has no AVX-512";
    std::mt19937 generator(9);
    for (const auto& [n, k] : kShapes) {
        const RightSide side{n, k, DType::float32, WeightLayout::pairs};
        const std::int64_t columns = onednn_tile_columns(n, k, DType::float32);
        ProductKernel* const ours =
            product_kernel(machine_products(), {64, false, side, false, DType::float32, 1});
        if (ours == nullptr) {  // this version sums a long k in another order; any sums 64 numbers in one
            ASSERT_GT(k, 64) << "n " << n;
            continue;
        }
        const Sides s = draw_sides(generator, 16, n, k, GetParam());
        const WideSides wide = wide_sides(s);
        Lines packed(onednn().packed_bytes(n, k, DType::float32));
        onednn().pack({n, k, DType::float32, WeightLayout::columns}, k, bytes_of(wide.b), packed.data());
        std::vector<float> wanted(static_cast<std::size_t>(16 * n));
        product_kernel(onednn(),
                       {16, false, {n, k, DType::float32, WeightLayout::packed}, false, DType::float32, 1})
            ->run(bytes_of(wide.a), packed.data(), reinterpret_cast<std::byte*>(wanted.data()));
        for (const std::int64_t rows : {1, 5, 13, 16}) {
            const std::vector<float> got = rows_by(*ours, rows, wide, packed_in_blocks(s, columns));
            expect_same(got, {wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(got.size())},
                        fmt::format("{} rows, n {}, k {}", rows, n, k));
            if (HasFatalFailure()) return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Values, WidenedBesideOneDnn, ::testing::ValuesIn(kEveryKind));

}  // namespace
}  // namespace tandem
