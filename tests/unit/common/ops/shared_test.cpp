// The headers that kernels share with the CPU's code, against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "common/ops/batched_copy.h"
#include "common/ops/shared/attention_index.h"
#include "common/ops/shared/divider.h"
#include "common/ops/shared/e4m3.h"
#include "common/ops/shared/gemm_layout.h"
#include "common/ops/shared/half.h"
#include "common/ops/shared/random.h"
#include "common/ops/shared/sampling.h"
#include "common/ops/shared/softmax.h"
#include "common/ops/shared/xxh3.h"
#include "common/tensor/dtype.h"

namespace tandem::ops::shared {
namespace {

TEST(SharedBits, RoundLikeTheClasses) {
    for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 4093) {
        const float value = float_of(static_cast<std::uint32_t>(bits));
        ASSERT_EQ(bfloat16_bits(value), bfloat16(value).bits) << bits;
    }
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
        const float half = static_cast<float>(float16(static_cast<std::uint16_t>(bits)));
        ASSERT_EQ(bits_of(float_of_half(static_cast<std::uint16_t>(bits))), bits_of(half)) << bits;
    }
}

TEST(SharedBits, HalvesAreRoundedToNearestEven) {
    for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 4093) {
        const float value = float_of(static_cast<std::uint32_t>(bits));
        ASSERT_EQ(half_bits(value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << bits;
    }
    for (std::uint32_t half = 0; half < 0x7c00u;
         ++half) {  // each, the middle to the next, and just beside it
        const std::uint32_t low = bits_of(float_of_half(static_cast<std::uint16_t>(half)));
        const std::uint32_t high = half == 0x7bffu
                                       ? bits_of(65536.0f)
                                       : bits_of(float_of_half(static_cast<std::uint16_t>(half + 1)));
        const float middle = (float_of(low) + float_of(high)) / 2;
        for (const std::uint32_t at : {low, bits_of(middle) - 1, bits_of(middle), bits_of(middle) + 1}) {
            const float value = float_of(at);
            ASSERT_EQ(half_bits(value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << at;
            ASSERT_EQ(beyond_half(value), half_bits(value) == 0x7c00u) << at;
        }
    }
    EXPECT_FALSE(beyond_half(INFINITY) || beyond_half(NAN));
}

TEST(SharedBits, StochasticRoundingIsRightInTheMean) {
    for (const float value : {1.0f, 1.001f, -3.14159f, 1e-20f, -7e30f, 1e-41f}) {
        const float low = float_of(bits_of(value) & 0xffff0000u);
        double sum = 0.0;
        for (std::uint32_t random = 0; random < 0x10000u; ++random) {
            const float rounded = float_of_bfloat16(bfloat16_bits_stochastic(value, random));
            const float high = float_of((bits_of(value) & 0xffff0000u) + 0x10000u);
            ASSERT_TRUE(rounded == low || rounded == high);
            sum += static_cast<double>(rounded);
        }
        EXPECT_NEAR(sum / 0x10000, static_cast<double>(value), 1e-7 * std::abs(static_cast<double>(value)));
    }
    EXPECT_EQ(bfloat16_bits_stochastic(INFINITY, 0xffff), bfloat16(INFINITY).bits);
    EXPECT_TRUE(std::isnan(float_of_bfloat16(bfloat16_bits_stochastic(float_of(0x7f800001u), 0))));
}

// The first known answers of the authors' test vectors (Random123, kat_vectors).
TEST(SharedRandom, KnownAnswers) {
    const Random128 zeros = philox(0, 0, 0);
    EXPECT_EQ(zeros.words[0], 0x6627e8d5u);
    EXPECT_EQ(zeros.words[1], 0xe169c58du);
    EXPECT_EQ(zeros.words[2], 0xbc57ac4cu);
    EXPECT_EQ(zeros.words[3], 0x9b00dbd8u);
    const Random128 ones = philox(~0ull, ~0ull, ~0ull);
    EXPECT_EQ(ones.words[0], 0x408f276du);
    EXPECT_EQ(ones.words[1], 0x41c83b0eu);
    EXPECT_EQ(ones.words[2], 0xa20bc7c6u);
    EXPECT_EQ(ones.words[3], 0x6d5451fdu);
}

TEST(SharedRandom, BitsDependOnTheElementOnly) {
    StochasticBits in_order(5, 3);
    double sum = 0.0;
    for (std::int64_t i = 0; i < 80000; ++i) {
        const std::uint32_t bits = in_order.of(i);
        if (i % 97 == 0) {
            ASSERT_EQ(StochasticBits(5, 3).of(i), bits);
        }
        ASSERT_LT(bits, 0x10000u);
        sum += bits;
    }
    EXPECT_NEAR(sum / 80000, 32767.5, 300);
    EXPECT_NE(StochasticBits(5, 3).of(0), StochasticBits(5, 4).of(0));
}

TEST(SharedDivider, DividesAsTheLanguageDoes) {
    std::mt19937 engine(4);
    std::vector<std::uint32_t> divisors = {1, 2, 3, 5, 7, 8, 48, 127, 128, 129, 641, 65535, 65536, 65537};
    for (const std::uint32_t large : {0x3fffffffu, 0x40000000u, 0x40000001u, 0x7ffffffeu, 0x7fffffffu})
        divisors.push_back(large);
    for (int i = 0; i < 2000; ++i) divisors.push_back(1 + (engine() >> (1 + i % 31)) % 0x7fffffffu);
    for (const std::uint32_t d : divisors) {
        const Divider by = divider(d);
        std::vector<std::uint32_t> dividends = {0, 1, d - 1, d, 0x7fffffffu, 0x7fffffffu / d * d};
        for (int i = 0; i < 200; ++i) dividends.push_back(engine() >> (1 + i % 31));
        for (std::uint64_t n = d; n < 0x80000000u; n = n * 3 + 1)
            for (const std::uint64_t near : {n / d * d - 1, n / d * d})
                dividends.push_back(static_cast<std::uint32_t>(near));
        for (const std::uint32_t n : dividends) {
            const std::uint32_t quotient = by.quotient(n);
            ASSERT_EQ(quotient, n / d) << n << " / " << d;
            ASSERT_EQ(by.rest(n, quotient), n % d) << n << " % " << d;
        }
    }
    EXPECT_EQ(divider(0).quotient(5), 5u);
}

TEST(SharedQuantize, QuotientsAreTheDivisions) {
    std::mt19937 engine(6);
    std::uniform_real_distribution<float> mantissa(1.0f, 2.0f), unit(-448.0f, 448.0f);
    for (int exponent = -126; exponent < 120; ++exponent) {
        for (int i = 0; i < 40; ++i) {
            const float scale = std::ldexp(mantissa(engine), exponent);
            const ExactDivision by(scale);
            for (int n = 0; n < 40; ++n) {
                const float x = (n % 2 == 0 ? unit(engine) : std::ldexp(unit(engine), -(n % 24))) * scale;
                ASSERT_EQ(bits_of(by.of(x)), bits_of(x / scale)) << x << " / " << scale;
            }
            for (const float x : {0.0f, -0.0f, 1e-45f, -1e-42f, 448.0f * scale}) {
                ASSERT_EQ(e4m3_bits(by.of(x)), e4m3_bits(x / scale)) << x << " / " << scale;
                ASSERT_EQ(int8_value(by.of(x)), int8_value(x / scale)) << x << " / " << scale;
            }
        }
    }
}

TEST(SharedExp, AgreesWithTheLibrarys) {
    for (float x = -87.0f; x < 88.5f; x += 0.0137f) {
        const double wanted = std::exp(static_cast<double>(x));
        ASSERT_NEAR(static_cast<double>(fast_exp(x)), wanted, 2e-7 * wanted) << x;
    }
    EXPECT_EQ(fast_exp(-INFINITY), 0.0f);
    EXPECT_EQ(fast_exp(INFINITY), INFINITY);
    EXPECT_TRUE(std::isnan(fast_exp(NAN)));
}

TEST(SharedSoftmax, PiecesGiveTheWhole) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0.0f, 6.0f);
    for (const float inverse : {1.0f, 1.7f}) {
        std::vector<float> values(501);
        for (float& value : values) value = normal(engine);
        values[7] = -INFINITY;
        SoftmaxSums merged;
        for (std::size_t begin = 0; begin < values.size(); begin += 50) {
            SoftmaxSums piece;
            for (std::size_t i = begin; i < std::min(begin + 50, values.size()); ++i) {
                if (values[i] > piece.max) raise(piece, values[i], inverse);
                take(piece, values[i], inverse);
            }
            merged = merge(merged, piece, inverse);
        }
        double max = -1e300, sum = 0.0, weighted = 0.0;
        for (const float value : values) max = std::max(max, static_cast<double>(value));
        for (const float value : values) {
            const double z = (static_cast<double>(value) - max) * static_cast<double>(inverse);
            sum += std::exp(z);
            if (std::isfinite(z)) weighted += std::exp(z) * z;
        }
        EXPECT_EQ(static_cast<double>(merged.max), max);
        EXPECT_NEAR(static_cast<double>(merged.sum), sum, 1e-5 * sum);
        EXPECT_NEAR(static_cast<double>(merged.weighted), weighted, 1e-5 * std::abs(weighted));
    }
    const SoftmaxSums nothing = merge(SoftmaxSums{}, SoftmaxSums{}, 1.0f);
    EXPECT_EQ(nothing.sum, 0.0f);
}

TEST(SharedAttentionIndex, AgreesWithTheDefinition) {
    for (std::int64_t q_len = 0; q_len < 7; ++q_len) {
        for (std::int64_t k_len = 0; k_len < 7; ++k_len) {
            for (const bool causal : {false, true}) {
                for (std::int64_t i = 0; i < q_len; ++i) {
                    std::int64_t seen = 0;
                    for (std::int64_t j = 0; j < k_len; ++j) seen += !causal || j <= i + (k_len - q_len);
                    EXPECT_EQ(visible_keys(i, q_len, k_len, causal), seen);
                }
                for (std::int64_t j = 0; j < k_len; ++j) {
                    std::int64_t first = 0;
                    while (first < q_len && causal && j > first + (k_len - q_len)) ++first;
                    EXPECT_EQ(first_query(j, q_len, k_len, causal), first);
                }
            }
        }
    }
}

TEST(SharedAttentionIndex, PartOfSkipsEmptyParts) {
    const std::vector<std::int64_t> starts = {0, 0, 3, 3, 3, 4, 9, 9};
    for (std::int64_t item = 0; item < 9; ++item) {
        const std::int64_t part = part_of(starts.data(), 7, item);
        const auto at = static_cast<std::size_t>(part);
        EXPECT_TRUE(starts[at] <= item && item < starts[at + 1]) << item;
    }
}

// A column-major product of what the layout names equals the row-major one that was asked for.
TEST(SharedGemmLayout, NamesTheSameProduct) {
    const std::int64_t m = 3, n = 4, k = 5;
    for (const int form : {0, 1, 2, 3}) {
        const bool ta = form & 1, tb = form & 2;
        std::vector<int> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int>(i * 7 % 11);
        for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int>(i * 5 % 13);
        const GemmLayout layout = gemm_layout(m, n, k, ta, tb);
        const auto element = [](const std::vector<int>& memory, const ColumnMajor& x, std::int64_t row,
                                std::int64_t column) {
            if (x.transpose) std::swap(row, column);
            EXPECT_TRUE(row < x.rows && column < x.columns && x.leading >= x.rows);
            return memory[static_cast<std::size_t>(column * x.leading + row)];
        };
        EXPECT_EQ(layout.product.rows, n);
        EXPECT_EQ(layout.product.columns, m);
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
                int wanted = 0, found = 0;
                for (std::int64_t x = 0; x < k; ++x) {
                    wanted += a[static_cast<std::size_t>(ta ? x * m + i : i * k + x)] *
                              b[static_cast<std::size_t>(tb ? j * k + x : x * n + j)];
                    found += element(b, layout.first, j, x) * element(a, layout.second, x, i);
                }
                EXPECT_EQ(found, wanted);
                EXPECT_EQ(j + i * layout.product.leading, i * n + j);  // where c's element lies
            }
        }
    }
}

// A class is never tuned for fewer rows than it has, nor (but for decode and the largest) for twice as many.
TEST(SharedGemm, ClassesOfRowsFitTheirRows) {
    for (std::int64_t m = 1; m <= 20'000; ++m) {
        const std::int64_t tuned = rows_class(m);
        if (m <= 128) {
            ASSERT_EQ(tuned, 128) << m;
        } else if (m <= 4096) {
            ASSERT_TRUE(tuned >= m && tuned < 2 * m) << m;
        } else {
            ASSERT_EQ(tuned, 4096) << m;
        }
        ASSERT_EQ(rows_class(tuned), tuned) << m;
    }
}

Checksum in_blocks(const std::vector<std::uint8_t>& bytes) {
    const Xxh3Secret secret = xxh3_secret();
    const auto word = [&](std::uint64_t at) {
        std::uint64_t value;
        __builtin_memcpy(&value, bytes.data() + at, 8);
        return value;
    };
    const std::uint64_t length = bytes.size();
    Xxh3Sums sums;
    for (unsigned j = 0; j < 8; ++j) sums.lanes[j] = xxh3_start(j);
    for (std::uint64_t block = 0; block < xxh3_blocks(length); ++block) {
        for (std::uint64_t stripe = 16 * block; stripe < std::min(16 * block + 16, xxh3_stripes(length));
             ++stripe) {
            for (unsigned j = 0; j < 8; ++j) {
                sums.lanes[j] += xxh3_product(word(stripe * 64 + 8 * j), secret.word(8 * (stripe % 16 + j)));
                sums.lanes[j ^ 1] += word(stripe * 64 + 8 * j);
            }
        }
        if (block >= xxh3_full_blocks(length)) continue;
        for (unsigned j = 0; j < 8; ++j)
            sums.lanes[j] = xxh3_scramble(sums.lanes[j], secret.word(kXxh3ScrambleSecret + 8 * j));
    }
    for (unsigned j = 0; j < 8; ++j) {
        const std::uint64_t at = length - 64;
        sums.lanes[j] +=
            xxh3_product(word(at + 8 * j), secret.word(kXxh3LastSecret + 8 * j)) + word(at + 8 * (j ^ 1));
    }
    Checksum result;
    xxh3_digest(sums, secret, length, result.low, result.high);
    return result;
}

TEST(SharedXxh3, EqualsTheLibrary) {
    std::mt19937 engine(1);
    for (const std::size_t length :
         {241u, 255u, 256u, 257u, 320u, 1023u, 1024u, 1025u, 1088u, 2048u, 2049u, 9999u}) {
        std::vector<std::uint8_t> bytes(length);
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(engine());
        EXPECT_EQ(to_hex(in_blocks(bytes)),
                  to_hex(checksum({reinterpret_cast<const std::byte*>(bytes.data()), length})))
            << length;
    }
}

// A descent as the kernel makes it, its histograms one weight at a time.
template <typename Reached>
bool descended(const std::vector<float>& weights, const Reached& reached, SamplingPlace& place) {
    bool found = true;
    for (int level = 0; level < kSamplingLevels; ++level) {
        std::vector<std::uint32_t> counts(kSamplingBuckets);
        std::vector<std::uint64_t> units(kSamplingBuckets);
        std::vector<double> masses(kSamplingBuckets);
        for (const float weight : weights) {
            const std::uint32_t bits = bits_of(weight);
            if (!sampling_within(bits, place.bits, level)) continue;
            ++counts[sampling_bucket(bits, level)];
            units[sampling_bucket(bits, level)] += sampling_units(bits);
        }
        for (unsigned b = 0; b < kSamplingBuckets; ++b)
            masses[b] = sampling_mass(units[b], level == 0 ? b : place.bits >> 23);
        const bool here = sampling_descend(place, level, counts.data(), masses.data(), reached);
        if (level == 0) found = here;
    }
    return found;
}

// Against the sorted weights, walked one by one: from 1 down to subnormals, with ties of every size.
TEST(SharedSampling, DescentsFindWhatSortingFinds) {
    std::mt19937_64 random(9);
    for (int turn = 0; turn < 200; ++turn) {
        std::vector<float> weights = {1.0f};
        for (std::size_t i = 0; i < 1 + random() % 300; ++i) {
            const bool tie = random() % 3 == 0;
            weights.push_back(
                tie ? weights[random() % weights.size()]
                    : std::exp(-static_cast<float>(random() % 100000) / (turn % 2 ? 1e3f : 1e4f)));
        }
        std::sort(weights.begin(), weights.end(), std::greater<>());
        double total = 0.0;
        for (const float weight : weights) total += static_cast<double>(weight);

        const SamplingPick pick{total * std::uniform_real_distribution<double>(0, 1)(random)};
        SamplingPlace place;
        ASSERT_TRUE(descended(weights, pick, place));
        double mass = 0.0;
        std::size_t at = 0;
        while ((mass += static_cast<double>(weights[at])) <= pick.at) ++at;
        EXPECT_EQ(float_of(place.bits), weights[at]);
        EXPECT_EQ(place.above + pick.tie(place), at);

        const SamplingCut cut{1 + random() % (2 * weights.size()),
                              turn % 3 == 0 ? 1e300 : total * 1e-4 * static_cast<double>(random() % 10000)};
        std::size_t kept = 0;
        for (mass = 0.0; kept < weights.size() && (kept == 0 || !cut(kept, mass)); ++kept)
            mass += static_cast<double>(weights[kept]);
        SamplingPlace end;
        if (descended(weights, cut, end)) {
            EXPECT_EQ(end.above + cut.kept(end), kept);
            EXPECT_EQ(float_of(end.bits), weights[kept - 1]);
        } else {
            EXPECT_EQ(kept, weights.size());
        }
    }
}

}  // namespace
}  // namespace tandem::ops::shared
