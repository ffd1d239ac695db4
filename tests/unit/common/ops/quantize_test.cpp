// Quantisation against definitions written down again here, in double: the nearest of all 256 numbers of the
// format, the scales block by block, and the error that the header promises.
#include "common/ops/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/error.h"
#include "tests/support/dequantize.h"

namespace tandem {
namespace {

using ops::Quantization;
using ops::ScaleGrid;
using ops::WeightBox;

// sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is NaN.
double e4m3_number(int bits) {
    const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// Of the non-negative numbers: the nearest; of two, the even one.
int nearest_e4m3(double magnitude) {
    static const std::array<double, 127> numbers = [] {
        std::array<double, 127> result{};
        for (int i = 0; i < 127; ++i) result[static_cast<std::size_t>(i)] = e4m3_number(i);
        return result;
    }();
    const auto above = std::lower_bound(numbers.begin(), numbers.end(), magnitude);
    if (above == numbers.end()) return 126;
    const auto index = static_cast<int>(above - numbers.begin());
    if (index == 0) return 0;
    const double up = *above - magnitude, down = magnitude - *(above - 1);
    if (up == down) return index % 2 == 0 ? index : index - 1;
    return up < down ? index : index - 1;
}

TEST(Float8, EveryNumberReadsBack) {
    for (int bits = 0; bits < 256; ++bits) {
        const auto byte = static_cast<std::uint8_t>(bits);
        const float value = test::e4m3_to_float(byte);
        if ((bits & 0x7f) == 0x7f) {
            EXPECT_TRUE(std::isnan(value)) << bits;
        } else {
            EXPECT_EQ(static_cast<double>(value), e4m3_number(bits)) << bits;
            EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
        }
        EXPECT_EQ(ops::float_to_e4m3(value), byte) << bits;
    }
}

// Rounding looks at the upper 12 bits, the one below and whether any other is set: these are all the cases.
TEST(Float8, EveryFloatRoundsToTheNearest) {
    for (std::uint32_t high = 0; high < 65536; ++high) {
        for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            const auto value = std::bit_cast<float>(high << 16 | low);
            const int sign = std::signbit(value) ? 0x80 : 0;
            const int wanted = std::isnan(value) ? 0x7f : nearest_e4m3(std::fabs(static_cast<double>(value)));
            ASSERT_EQ(static_cast<int>(ops::float_to_e4m3(value)), wanted | sign) << value << " " << high;
        }
    }
}

struct Weight {
    std::int64_t rows, columns;
    DType dtype;
    std::vector<std::byte> bytes;
    std::vector<float> values;

    WeightBox box(std::int64_t row, std::int64_t column, std::int64_t row_count,
                  std::int64_t column_count) const {
        const std::size_t stride = static_cast<std::size_t>(columns) * dtype_size(dtype);
        const std::size_t at =
            static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(column) * dtype_size(dtype);
        return {bytes.data() + at, stride, dtype, row, column, row_count, column_count};
    }
    float at(std::int64_t row, std::int64_t column) const {
        return values[static_cast<std::size_t>(row * columns + column)];
    }
};

Weight make_weight(std::int64_t rows, std::int64_t columns, DType dtype, std::vector<float> values) {
    Weight result{rows, columns, dtype, {}, std::move(values)};
    result.bytes.resize(result.values.size() * dtype_size(dtype));
    for (std::size_t i = 0; i < result.values.size(); ++i) {
        if (dtype == DType::float32) {
            std::memcpy(result.bytes.data() + 4 * i, &result.values[i], 4);
        } else {
            const bfloat16 half(result.values[i]);
            std::memcpy(result.bytes.data() + 2 * i, &half, 2);
            result.values[i] = static_cast<float>(half);
        }
    }
    return result;
}

// Of very different magnitudes, with zeros; some blocks and rows hold nothing else.
Weight random_weight(std::int64_t rows, std::int64_t columns, DType dtype, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / columns,
                   column = static_cast<std::int64_t>(i) % columns;
        values[i] = generator() % 10 == 0
                        ? 0.0f
                        : std::ldexp(normal(generator), static_cast<int>(generator() % 24) - 20);
        if (row % 5 == 3 || (row / 128 + column / 128) % 4 == 3) values[i] = 0.0f;
        if (row % 7 == 2) values[i] = std::ldexp(values[i], -130);
    }
    return make_weight(rows, columns, dtype, std::move(values));
}

std::size_t scale_index(const ScaleGrid& grid, std::int64_t row, std::int64_t column) {
    if (grid.kind == Quantization::int8_channel) return static_cast<std::size_t>(row);
    return static_cast<std::size_t>(row / 128 * ((grid.columns + 127) / 128) + column / 128);
}

std::vector<float> naive_scales(const Weight& weight, const ScaleGrid& grid) {
    std::vector<float> result(static_cast<std::size_t>(grid.scale_rows() * grid.scale_columns()));
    for (std::int64_t row = 0; row < weight.rows; ++row) {
        for (std::int64_t column = 0; column < weight.columns; ++column) {
            float& amax = result[scale_index(grid, row, column)];
            amax = std::max(amax, std::fabs(weight.at(row, column)));
        }
    }
    for (float& v : result) {
        const float scale = v / (grid.kind == Quantization::fp8_block ? 448.0f : 127.0f);
        v = v == 0.0f ? 1.0f : std::max(scale, 0x1p-126f);
    }
    return result;
}

std::uint8_t naive_bits(float value, Quantization kind, float scale) {
    const float ratio = value / scale;
    if (kind == Quantization::int8_channel) {
        return static_cast<std::uint8_t>(
            static_cast<std::int8_t>(std::clamp(std::nearbyint(ratio), -127.0f, 127.0f)));
    }
    return static_cast<std::uint8_t>(nearest_e4m3(std::fabs(static_cast<double>(ratio))) |
                                     (std::signbit(ratio) ? 0x80 : 0));
}

// Half a unit in the last place at w / scale, times scale; and what fp32 loses.
double bound(double value, Quantization kind, double scale) {
    const double lost = std::fabs(value) * 0x1p-22;
    if (kind == Quantization::int8_channel) return scale / 2 + lost;
    return std::max(std::fabs(value) / 16, scale / 1024) + lost;
}

TEST(Quantize, BoxesOfEveryPlaceAgainstTheDefinition) {
    constexpr std::int64_t kShapes[][2] = {{1, 1}, {3, 500}, {128, 128}, {130, 257}, {260, 127}, {300, 384}};
    std::mt19937 generator(1);
    for (const auto& shape : kShapes) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            for (const Quantization kind : {Quantization::fp8_block, Quantization::int8_channel}) {
                SCOPED_TRACE(::testing::Message() << shape[0] << "x" << shape[1] << " " << dtype_name(dtype)
                                                  << " " << static_cast<int>(kind));
                const Weight weight = random_weight(shape[0], shape[1], dtype, 7);
                const ScaleGrid grid{kind, shape[0], shape[1]};
                std::vector<float> scales(static_cast<std::size_t>(grid.scale_rows() * grid.scale_columns()));
                // In two parts, as two ranks hold them, cut in the middle of a block.
                const std::int64_t row_cut = (shape[0] + 1) / 2, column_cut = shape[1] / 3;
                ops::accumulate_amax(weight.box(0, 0, row_cut, shape[1]), grid, scales);
                ops::accumulate_amax(weight.box(row_cut, 0, shape[0] - row_cut, column_cut), grid, scales);
                ops::accumulate_amax(
                    weight.box(row_cut, column_cut, shape[0] - row_cut, shape[1] - column_cut), grid, scales);
                ops::amax_to_scale(grid, scales);
                ASSERT_EQ(scales, naive_scales(weight, grid));
                for (int i = 0; i < 6; ++i) {
                    const auto pick = [&](std::int64_t below) {
                        return static_cast<std::int64_t>(generator()) % below;
                    };
                    const std::int64_t row = i == 0 ? 0 : pick(shape[0]),
                                       column = i == 0 ? 0 : pick(shape[1]);
                    const std::int64_t rows = i == 0 ? shape[0] : 1 + pick(shape[0] - row);
                    const std::int64_t columns = i == 0 ? shape[1] : 1 + pick(shape[1] - column);
                    std::vector<std::byte> to(static_cast<std::size_t>(rows * columns));
                    const ops::Checksum sum = ops::quantize(weight.box(row, column, rows, columns), grid,
                                                            scales, {to.data(), to.size()});
                    ASSERT_EQ(sum, ops::checksum({to.data(), to.size()}));
                    for (std::size_t at = 0; at < to.size(); ++at) {
                        const std::int64_t r = row + static_cast<std::int64_t>(at) / columns;
                        const std::int64_t c = column + static_cast<std::int64_t>(at) % columns;
                        const float scale = scales[scale_index(grid, r, c)], value = weight.at(r, c);
                        const auto bits = static_cast<std::uint8_t>(to[at]);
                        ASSERT_EQ(bits, naive_bits(value, kind, scale)) << value << " / " << scale;
                        const double error =
                            std::fabs(static_cast<double>(test::dequantize(bits, kind, scale)) - value);
                        ASSERT_LE(error, bound(value, kind, scale)) << value << " / " << scale;
                    }
                }
            }
        }
    }
}

// A row of all values in one scale, also from an odd element on, so that each meets each place of a vector.
void one_row_against_the_definition(const std::vector<float>& values, DType dtype, float scale) {
    const auto columns = static_cast<std::int64_t>(values.size());
    const Weight weight = make_weight(1, columns, dtype, values);
    for (const Quantization kind : {Quantization::fp8_block, Quantization::int8_channel}) {
        const ScaleGrid grid{kind, 1, columns};
        const std::vector<float> scales(static_cast<std::size_t>(grid.scale_columns()), scale);
        for (const std::int64_t first : {0, 37}) {
            std::vector<std::byte> to(static_cast<std::size_t>(columns - first));
            ops::quantize(weight.box(0, first, 1, columns - first), grid, scales, {to.data(), to.size()});
            for (std::int64_t i = first; i < columns; ++i) {
                const float value = weight.at(0, i);
                ASSERT_EQ(static_cast<std::uint8_t>(to[static_cast<std::size_t>(i - first)]),
                          naive_bits(value, kind, scale))
                    << value << " / " << scale;
            }
        }
    }
}

constexpr float kScales[] = {1.0f, 0.75f, 1.0f / 3, 1.9999999f, 0.0123f, 448.0f, 3e-30f, 0x1p-126f, 7.5e35f};

TEST(Quantize, EveryBfloat16InSeveralScales) {
    std::vector<float> values;
    for (std::uint32_t high = 0; high < 65536; ++high) {
        const auto value = std::bit_cast<float>(high << 16);
        if (std::isfinite(value)) values.push_back(value);
    }
    for (const float scale : kScales)
        ASSERT_NO_FATAL_FAILURE(one_row_against_the_definition(values, DType::bfloat16, scale));
}

TEST(Quantize, FloatsOfEveryExponentInSeveralScales) {
    std::vector<float> values;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 9973) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (std::isfinite(value)) values.push_back(value);
    }
    for (const float scale : kScales)
        ASSERT_NO_FATAL_FAILURE(one_row_against_the_definition(values, DType::float32, scale));
}

TEST(Quantize, ExtremesOfTheFormat) {
    for (const Quantization kind : {Quantization::fp8_block, Quantization::int8_channel}) {
        for (const float most : {1.0f, 3.4e38f, 1e-30f, 0x1p-126f, 0x1p-149f, 448.0f, 127.0f}) {
            const Weight weight = make_weight(1, 4, DType::float32, {most, -most, most / 3, 0.0f});
            const ScaleGrid grid{kind, 1, 4};
            std::vector<float> scales(1);
            ops::accumulate_amax(weight.box(0, 0, 1, 4), grid, scales);
            EXPECT_EQ(scales[0], most);
            ops::amax_to_scale(grid, scales);
            std::vector<std::byte> to(4);
            ops::quantize(weight.box(0, 0, 1, 4), grid, scales, {to.data(), 4});
            for (std::size_t i = 0; i < 4; ++i) {
                const float back = test::dequantize(static_cast<std::uint8_t>(to[i]), kind, scales[0]);
                const double error = std::fabs(static_cast<double>(back) - weight.values[i]);
                EXPECT_LE(error, bound(weight.values[i], kind, scales[0])) << weight.values[i];
            }
        }
    }
}

TEST(Quantize, RefusesWhatItCannotHold) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const float bad : {infinity, -infinity, std::nanf("")}) {
            std::vector<float> values(200, 1.0f);
            values[170] = bad;
            const Weight weight = make_weight(1, 200, dtype, values);
            for (const Quantization kind : {Quantization::fp8_block, Quantization::int8_channel}) {
                const ScaleGrid grid{kind, 1, 200};
                std::vector<float> amax(static_cast<std::size_t>(grid.scale_columns()));
                EXPECT_NO_THROW(ops::accumulate_amax(weight.box(0, 0, 1, 170), grid, amax));
                EXPECT_THROW(ops::accumulate_amax(weight.box(0, 0, 1, 200), grid, amax), InvalidArgument);
            }
        }
    }
    const Weight weight = random_weight(4, 8, DType::float32, 1);
    const ScaleGrid grid{Quantization::int8_channel, 4, 8};
    std::vector<float> scales(4, 1.0f);
    std::vector<std::byte> to(32);
    EXPECT_THROW(ops::quantize(weight.box(0, 0, 4, 8), grid, scales, {to.data(), 31}), InvalidArgument);
    EXPECT_THROW(ops::quantize(weight.box(1, 0, 4, 8), grid, scales, {to.data(), 32}), InvalidArgument);
    EXPECT_THROW(ops::accumulate_amax(weight.box(0, 1, 4, 8), grid, scales), InvalidArgument);
    scales.resize(3);
    EXPECT_THROW(ops::quantize(weight.box(0, 0, 4, 8), grid, scales, {to.data(), 32}), InvalidArgument);
    EXPECT_THROW(ops::amax_to_scale(grid, scales), InvalidArgument);
}

TEST(DType, NamesOfTheQuantisedOnes) {
    for (const char* name : {"float8_e4m3fn", "fp8", "F8_E4M3"}) {
        EXPECT_EQ(dtype_from_name(name), DType::float8_e4m3fn);
    }
    for (const char* name : {"int8", "I8"}) EXPECT_EQ(dtype_from_name(name), DType::int8);
    for (const DType dtype : {DType::float8_e4m3fn, DType::int8}) {
        EXPECT_EQ(dtype_size(dtype), 1u);
        EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
        EXPECT_EQ(dtype_from_name(safetensors_dtype_name(dtype)), dtype);
    }
}

}  // namespace
}  // namespace tandem
