// Two sides of bfloat16, and their product by one of our kernels of pair_products.h.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/pair_products.h"
#include "common/ops/cpu/product.h"

namespace tandem::testing {

using Halves = std::vector<std::uint16_t>;

// Numbers of bfloat16 that a chain of sums keeps bits of, or loses some.
enum class Values { normal, cancelling, far_apart, subnormal, any };
constexpr Values kEveryKind[] = {Values::normal, Values::cancelling, Values::far_apart, Values::subnormal,
                                 Values::any};

Halves draw(std::mt19937& generator, std::int64_t count, Values kind);

struct Sides {
    std::int64_t rows, n, k;
    Halves a, b;  // [rows, k], [n, k]
};

Sides draw_sides(std::mt19937& generator, std::int64_t rows, std::int64_t n, std::int64_t k, Values kind);

ops::detail::RightSide columns_of(const Sides& s);
ops::detail::Lines packed_in_blocks(const Sides& s, std::int64_t columns);

float wide_number(const Halves& from, std::int64_t index);
std::vector<float> widened(const Halves& from);

// Whether the left side is widened before such kernels see it.
bool multiplies_float32(const ops::detail::PairProducts& kernels);

// Of a block of b, for such kernels.
std::int64_t most_columns(const ops::detail::PairProducts& kernels);

// [rows, n] in float32; fails where more is written.
std::vector<float> multiplied(const ops::detail::PairProducts& kernels, const Sides& s, std::int64_t columns,
                              std::int64_t chain = ops::detail::kPairChain);

// The same bits; which NaN is not said.
void expect_same(const std::vector<float>& got, const std::vector<float>& wanted, const std::string& what);

}  // namespace tandem::testing
