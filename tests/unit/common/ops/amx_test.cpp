// The product of AMX's tiles: plain C++ against numbers by hand, and in every bit against the instruction, where the
// machine has it and TANDEM_INSTRUCTIONS=amx asks for it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/amx_probe.h"
#include "tests/unit/common/ops/pair_words.h"

namespace tandem {
namespace {

using ops::shared::bits_of;
using ops::shared::float_of;
using testing::kMultiplyByAmx;
using testing::kMultiplyEmulated;
using testing::MultiplyTiles;
using testing::pair_of;

using PairTile = std::array<std::uint32_t, 256>;
using FloatTile = std::array<float, 256>;

std::vector<MultiplyTiles> products_of_tiles() {
    std::vector<MultiplyTiles> all = {kMultiplyEmulated};
    if (ops::detail::runs_amx()) all.push_back(kMultiplyByAmx);
    return all;
}

class AmxTiles : public ::testing::TestWithParam<MultiplyTiles> {};

struct AmxTerm {
    float first, second;  // of the left operand; of the right one
    float first_factor = 1, second_factor = 1;
};

// Row 3, lane 5: sum + the terms, one for each k.
float multiplied(MultiplyTiles multiply, float sum, const std::vector<AmxTerm>& terms) {
    PairTile a{}, b{};
    FloatTile c{};
    c[3 * 16 + 5] = sum;
    for (std::size_t k = 0; k < terms.size(); ++k) {
        a[3 * 16 + k] = pair_of(terms[k].first, terms[k].second);
        b[k * 16 + 5] = pair_of(terms[k].first_factor, terms[k].second_factor);
    }
    multiply(a.data(), b.data(), c.data());
    return c[3 * 16 + 5];
}

TEST_P(AmxTiles, AddFirstAndSecondNumbersApart) {
    const float step = std::ldexp(1.0f, -24);
    const auto of = [&](float sum, const std::vector<AmxTerm>& terms) {
        return multiplied(GetParam(), sum, terms);
    };
    EXPECT_EQ(of(11, {{2, 3, 5, 7}, {4, 6, 8, 10}}), 134.0f);
    EXPECT_EQ(of(0, {{1, step}, {0, step}}), 1 + 2 * step) << "the second numbers together";
    EXPECT_EQ(of(0, {{1, 0}, {step, 0}, {step, 0}}), 1.0f) << "to the first ones each in turn";
    EXPECT_EQ(of(0, {{step, 0}, {step, 0}, {1, 0}}), 1 + 2 * step);
    EXPECT_EQ(of(1, {{step, 0}, {step, 0}}), 1 + 2 * step) << "to the element at the end";
    EXPECT_EQ(of(1, {{step, step}}), 1 + 2 * step);
    EXPECT_EQ(of(-1, {{1, step}}), 0.0f) << "1 + step is 1 before";
    EXPECT_EQ(of(1, {{step, 0}}), 1.0f) << "a tie goes to even";
    EXPECT_EQ(of(0, {{1, 0, 1, 1}, {-1, 0, 1, 1}}), 0.0f);
}

TEST_P(AmxTiles, KnowNoSubnormalNumber) {
    const auto two = [](int n) { return std::ldexp(1.0f, n); };
    const auto of = [&](float sum, const std::vector<AmxTerm>& terms) {
        return bits_of(multiplied(GetParam(), sum, terms));
    };
    EXPECT_EQ(of(0, {{two(-130), 0, two(20), 1}}), 0U) << "a factor";
    EXPECT_EQ(of(two(-130), {}), 0U) << "the element";
    EXPECT_EQ(of(0, {{two(-64), 0, two(-63), 1}, {two(-64), 0, two(-63), 1}}), 0U) << "a product";
    EXPECT_EQ(of(0, {{1.5f * two(-126), -two(-126)}}), 0U) << "the sum of both";
    EXPECT_EQ(of(1.5f * two(-126), {{-two(-126), 0}}), 0U) << "the sum with the element";
    EXPECT_EQ(of(two(-126), {{two(-126), two(-126)}}), bits_of(3 * two(-126)));
}

TEST_P(AmxTiles, AreRowsTimesLanes) {
    PairTile a{}, b{};
    FloatTile sum{};
    for (std::size_t i = 0; i < 256; ++i) {
        a[i] = pair_of(static_cast<float>(i % 7), static_cast<float>(i / 16));
        b[i] = pair_of(static_cast<float>(i % 5), static_cast<float>(i % 16));
        sum[i] = static_cast<float>(i);
    }
    FloatTile result = sum;
    GetParam()(a.data(), b.data(), result.data());
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t lane = 0; lane < 16; ++lane) {
            std::size_t wanted = row * 16 + lane + 16 * row * lane;
            for (std::size_t k = 0; k < 16; ++k) wanted += (row * 16 + k) % 7 * ((k * 16 + lane) % 5);
            EXPECT_EQ(result[row * 16 + lane], static_cast<float>(wanted)) << row << ' ' << lane;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, AmxTiles, ::testing::ValuesIn(products_of_tiles()), [](const auto& info) {
    return std::string(info.param == kMultiplyEmulated ? "emulated" : "hardware");
});

// Any bits, or numbers of like size in the middle of the range or at its lower end.
TEST(AmxOfThisMachine, IsThatOfPlainCpp) {
    if (!ops::detail::runs_amx()) GTEST_SKIP() << "no AMX, or TANDEM_INSTRUCTIONS is not amx";
    std::mt19937_64 generator{1};
    const auto any = [&] { return static_cast<std::uint32_t>(generator()); };
    for (int round = 0; round < 3000; ++round) {
        const auto near = [&](std::uint32_t middle) {
            return (any() & 0x807fffffU) | (middle + any() % 8) << 23;
        };
        PairTile a, b;
        FloatTile wanted;
        const std::uint32_t middle = round % 3 == 1 ? 62 : 123;
        for (std::size_t i = 0; i < 256; ++i) {
            a[i] = round % 3 == 0 ? any() : (near(middle) & 0xffff0000U) | near(middle) >> 16;
            b[i] = round % 3 == 0 ? any() : (near(middle) & 0xffff0000U) | near(middle) >> 16;
            wanted[i] = float_of(round % 3 == 0 ? any() : near(round % 3 == 1 ? 0 : middle));
        }
        FloatTile found = wanted;
        kMultiplyEmulated(a.data(), b.data(), wanted.data());
        kMultiplyByAmx(a.data(), b.data(), found.data());
        for (std::size_t i = 0; i < 256; ++i) {
            const bool same = bits_of(found[i]) == bits_of(wanted[i]) ||
                              (std::isnan(found[i]) && std::isnan(wanted[i]));  // which NaN is not said
            ASSERT_TRUE(same) << "round " << round << ", element " << i << std::hex << ": "
                              << bits_of(found[i]) << ", emulated " << bits_of(wanted[i]);
        }
    }
}

}  // namespace
}  // namespace tandem
