#include "tests/unit/common/ops/pair_products_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/align.h"
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/pair_products_here.h"

namespace tandem::testing {

using namespace ops::detail;
using ops::shared::float_of;

Halves draw(std::mt19937& generator, std::int64_t count, Values kind) {
    std::normal_distribution<float> normal;
    Halves result(static_cast<std::size_t>(count));
    for (std::uint16_t& x : result) {
        const auto bits = static_cast<std::uint32_t>(generator());
        const auto near = [&](std::uint32_t low, std::uint32_t exponents) {
            return static_cast<std::uint16_t>((bits & 0x807fU) | (low + (bits >> 16) % exponents) << 7);
        };
        switch (kind) {
            case Values::normal:
                x = ops::shared::bfloat16_bits(normal(generator));
                break;
            case Values::cancelling:  // each sum may leave the last bits of one before
                x = near(126, 2);
                break;
            case Values::far_apart:
                x = near(100, 56);
                break;
            case Values::subnormal:  // products and sums around the least normal number
                x = near(58, 10);
                break;
            case Values::any:  // infinite and NaN, too, but rarely
                x = generator() % 64 == 0 ? static_cast<std::uint16_t>(bits >> 8) : near(120, 12);
                break;
        }
    }
    return result;
}

Sides draw_sides(std::mt19937& generator, std::int64_t rows, std::int64_t n, std::int64_t k, Values kind) {
    return {rows, n, k, draw(generator, rows * k, kind), draw(generator, n * k, kind)};
}

RightSide columns_of(const Sides& s) {
    return {s.n, s.k, DType::bfloat16, WeightLayout::columns};
}

Lines packed_in_blocks(const Sides& s, std::int64_t columns) {
    Lines packed(static_cast<std::size_t>(round_up(s.n, columns) * round_up(s.k, 32) * 2));
    pack_tiles(columns_of(s), s.k, columns, reinterpret_cast<const std::byte*>(s.b.data()), packed.data());
    return packed;
}

float wide_number(const Halves& from, std::int64_t index) {
    return float_of(std::uint32_t{from[static_cast<std::size_t>(index)]} << 16);
}

std::vector<float> widened(const Halves& from) {
    std::vector<float> result(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) result[i] = wide_number(from, static_cast<std::int64_t>(i));
    return result;
}

bool multiplies_float32(const PairProducts& kernels) {
    return kernels.multiply == kWidenedProducts.multiply ||
           kernels.multiply == kWidenedProductsAvx2.multiply ||
           kernels.multiply == kWidenedProductsEmulated.multiply;
}

std::int64_t most_columns(const PairProducts& kernels) {
    return kernels.multiply == kWidenedProductsAvx2.multiply ? kAvx2Columns : kMostPairColumns;
}

std::vector<float> multiplied(const PairProducts& kernels, const Sides& s, std::int64_t columns,
                              std::int64_t chain) {
    const std::vector<float> wide_a = widened(s.a);
    const bool wide = multiplies_float32(kernels);
    const auto a_row = [&](std::int64_t row) -> const void* {
        return wide ? static_cast<const void*>(wide_a.data() + row * s.k) : s.a.data() + row * s.k;
    };
    const Lines packed = packed_in_blocks(s, columns);
    std::vector<float> c(static_cast<std::size_t>(s.rows * s.n) + 1, 7.0f);
    for (std::int64_t row = 0; row < s.rows; row += kMostPairRows)
        kernels.multiply({.rows = std::min(kMostPairRows, s.rows - row),
                          .n = s.n,
                          .k = s.k,
                          .columns = columns,
                          .chain = chain,
                          .a = a_row(row),
                          .b = packed.data(),
                          .bias = nullptr,
                          .c = c.data() + row * s.n,
                          .rounded_c = nullptr,
                          .c_row = s.n});
    EXPECT_EQ(c.back(), 7.0f) << "writes past the last row";
    c.pop_back();
    return c;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& wanted, const std::string& what) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        const bool same = ops::shared::bits_of(got[i]) == ops::shared::bits_of(wanted[i]) ||
                          (std::isnan(got[i]) && std::isnan(wanted[i]));
        ASSERT_TRUE(same) << what << ", output " << i << ": " << got[i] << " for " << wanted[i];
    }
}

}  // namespace tandem::testing
