// The primitives of attention over pairs of bfloat16: plain C++ against numbers by hand and, in every bit, against
// the instructions where this machine has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/pair_words.h"
#include "tests/unit/common/ops/pairs_probe.h"

namespace tandem {
namespace {

using ops::shared::bits_of;
using ops::shared::float_of;
using testing::kPairsEmulated;
using testing::kPairsHardware;
using testing::pair_of;
using testing::PairsProbe;

template <typename T>
using Lanes = std::array<T, 16>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float dot(const PairsProbe& probe, std::uint32_t a, std::uint32_t b, float sum) {
    Lanes<std::uint32_t> left, right;
    Lanes<float> sums, result{};
    left.fill(a), right.fill(b), sums.fill(sum);
    probe.dot(left.data(), right.data(), sums.data(), result.data());
    return result[5];
}

std::vector<const PairsProbe*> probes() {
    std::vector<const PairsProbe*> all = {&kPairsEmulated};
    if (ops::detail::runs_avx512_bf16()) all.push_back(&kPairsHardware);
    return all;
}

class Pairs : public ::testing::TestWithParam<const PairsProbe*> {};

TEST_P(Pairs, DotAddsTheSecondThenTheFirst) {
    const float step = std::ldexp(1.0f, -24);
    const auto of = [&](float a, float b, float c, float d, float sum) {
        return dot(*GetParam(), pair_of(a, b), pair_of(c, d), sum);
    };
    EXPECT_EQ(of(2, 3, 5, 7, 11), 42.0f);
    EXPECT_EQ(of(step, 1, 1, 1, 0), 1.0f);  // the tie goes to even
    EXPECT_EQ(of(1, step, 1, 1, 0), 1.0f);
    EXPECT_EQ(of(-1, step, 1, 1, 1), 0.0f);  // 1 + step is 1
    EXPECT_EQ(of(step, -1, 1, 1, 1), step);
    EXPECT_EQ(bits_of(of(-1, 0, 1, 0, 1)), 0U);
    EXPECT_EQ(of(0, 0, kInfinity, 0, 1) == of(0, 0, kInfinity, 0, 1), false);
    EXPECT_EQ(of(1, 0, kInfinity, 0, 1), kInfinity);
}

TEST_P(Pairs, DotKnowsNoSubnormalNumber) {
    const auto two = [](int n) { return std::ldexp(1.0f, n); };
    const auto of = [&](float a, float b, float sum) {
        return dot(*GetParam(), pair_of(0, a), pair_of(0, b), sum);
    };
    EXPECT_EQ(bits_of(of(two(-130), two(20), 0)), 0U) << "a factor";
    EXPECT_EQ(bits_of(of(0, 0, -two(-130))), 0U) << "a sum that meets +0";
    EXPECT_EQ(bits_of(of(two(-64), -two(-63), 0)), 0U) << "a product, whose sign the next 0 takes";
    EXPECT_EQ(bits_of(of(-two(-64), two(-64), two(-126))), 0U) << "a difference";
    EXPECT_EQ(of(-two(-76), two(-76), two(-126)), two(-126)) << "what rounds to a normal number";
    EXPECT_EQ(of(-two(-75), two(-76), two(-126)), two(-126)) << "a tie";
    EXPECT_EQ(of(-3 * two(-76), two(-76), two(-126)), 0.0f) << "just below it";
    EXPECT_EQ(of(-two(-75), two(-75), two(-126)), 0.0f) << "what 24 bits hold";
}

TEST_P(Pairs, PowersOfTwo) {
    Lanes<float> x{}, result{};
    double worst = 0;
    for (float at = -126.0f; at < 2.0f; at += 0.00713f * 16) {
        for (std::size_t i = 0; i < 16; ++i) x[i] = at + 0.00713f * static_cast<float>(i);
        GetParam()->power_of_two(x.data(), result.data());
        for (std::size_t i = 0; i < 16; ++i) {
            const double wanted = std::exp2(double{x[i]});
            worst = std::max(worst, std::abs(double{result[i]} - wanted) / wanted);
        }
    }
    EXPECT_LT(worst, 2.4e-7);
    x = {0, -1, -126, -126.01f, -kInfinity, std::nanf(""), -3e38f, 5, -0.0f};
    GetParam()->power_of_two(x.data(), result.data());
    EXPECT_EQ(result[0], 1.0f);
    EXPECT_EQ(result[1], 0.5f);
    EXPECT_EQ(result[2], std::ldexp(1.0f, -126));
    for (const std::size_t zero : {3U, 4U, 6U}) EXPECT_EQ(bits_of(result[zero]), 0U);
    EXPECT_TRUE(std::isnan(result[5]));
    EXPECT_EQ(result[7], 32.0f);
    EXPECT_EQ(result[8], 1.0f);
}

TEST_P(Pairs, LoadsReadNothingElse) {
    const std::vector<std::uint32_t> three = {7, 8, 9};  // the sanitizer stands behind them
    Lanes<std::uint32_t> result{};
    GetParam()->load(three.data(), 0b111, result.data());
    EXPECT_EQ(result, (Lanes<std::uint32_t>{7, 8, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}));
}

INSTANTIATE_TEST_SUITE_P(Ways, Pairs, ::testing::ValuesIn(probes()), [](const auto& info) {
    return std::string(info.param == &kPairsEmulated ? "emulated" : "hardware");
});

// --- the two against each other ---

// Any bits, or numbers whose exponents lie close together, at an end of the range as in the middle.
struct Draw {
    std::mt19937_64 generator{1};

    std::uint32_t any() { return static_cast<std::uint32_t>(generator()); }
    std::uint32_t near(std::uint32_t low, std::uint32_t count) {
        return (any() & 0x807fffffU) | (low + any() % count) << 23;
    }
    std::uint32_t near_pair(std::uint32_t low, std::uint32_t count) {
        return (near(low, count) & 0xffff0000U) | near(low, count) >> 16;
    }
};

bool same(float a, float b) {
    return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b));  // which NaN is not said
}

TEST(PairsOfThisMachine, AreThoseOfPlainCpp) {
    if (!ops::detail::runs_avx512_bf16()) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    Draw draw;
    for (int round = 0; round < 200000; ++round) {
        Lanes<std::uint32_t> a, b;
        Lanes<float> sum, wanted{}, found{};
        for (std::size_t i = 0; i < 16; ++i) {
            const int kind = round % 5;
            a[i] = kind == 0 ? draw.any() : draw.near_pair(kind == 1 ? 60 : 120, kind == 1 ? 8 : 10);
            b[i] = kind == 0   ? draw.any()
                   : kind == 4 ? a[i] ^ 0x80000000U
                               : draw.near_pair(kind == 1 ? 60 : 115, kind == 1 ? 8 : 12);
            sum[i] = float_of(kind == 0 ? draw.any() : (kind == 1 ? draw.near(0, 8) : draw.near(113, 22)));
        }
        kPairsEmulated.dot(a.data(), b.data(), sum.data(), wanted.data());
        kPairsHardware.dot(a.data(), b.data(), sum.data(), found.data());
        for (std::size_t i = 0; i < 16; ++i) {
            ASSERT_TRUE(same(found[i], wanted[i]))
                << std::hex << a[i] << " . " << b[i] << " + " << bits_of(sum[i]) << ": " << bits_of(found[i])
                << ", emulated " << bits_of(wanted[i]);
        }
    }
}

TEST(PairsOfThisMachine, RoundCompareAndRaiseAsPlainCpp) {
    if (!ops::detail::runs_avx512_bf16()) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    Draw draw;
    for (int round = 0; round < 100000; ++round) {
        Lanes<float> x, y;
        for (std::size_t i = 0; i < 16; ++i) {
            x[i] = float_of(round % 2 == 0 ? draw.any() : draw.near(120, 15));
            y[i] = float_of(round % 4 == 0 ? draw.any() & 0x807fffffU : draw.any());
        }
        Lanes<std::uint32_t> wanted, found;
        kPairsEmulated.narrow(x.data(), y.data(), wanted.data());
        kPairsHardware.narrow(x.data(), y.data(), found.data());
        ASSERT_EQ(found, wanted) << "narrow, round " << round;
        std::array<Lanes<float>, 4> here{}, there{};
        for (Lanes<float>* of : {&x, &y}) {
            Lanes<float> powers = *of;
            for (float& power : powers) power = power > 127.0f ? -power : power;
            kPairsEmulated.power_of_two(powers.data(), there[0].data());
            kPairsHardware.power_of_two(powers.data(), here[0].data());
            kPairsEmulated.compare(x.data(), y.data(), there[1].data(), there[2].data(), there[3].data());
            kPairsHardware.compare(x.data(), y.data(), here[1].data(), here[2].data(), here[3].data());
            for (std::size_t what = 0; what < 4; ++what) {
                for (std::size_t i = 0; i < 16; ++i) {
                    ASSERT_TRUE(same(here[what][i], there[what][i]))
                        << what << " of " << std::hex << bits_of((*of)[i]) << ": " << bits_of(here[what][i])
                        << ", emulated " << bits_of(there[what][i]);
                }
            }
        }
    }
}

}  // namespace
}  // namespace tandem
