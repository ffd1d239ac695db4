// The softmax kernels of every instruction set that this machine has, against fp64 and against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGuard = 12345.0f;

std::vector<const SoftmaxKernels*> sets() {
    std::vector<const SoftmaxKernels*> all = {&kSoftmaxBaseline};
    if (runs_v3()) all.push_back(&kSoftmaxAvx2);
    if (runs_v4()) all.push_back(&kSoftmaxAvx512);
    return all;
}

constexpr std::int64_t kCounts[] = {1, 2, 15, 16, 17, 31, 40, 1023, 1024, 1025, 1039, 2048, 3001};

std::size_t blocks_of(std::int64_t count) {
    return static_cast<std::size_t>((count + kSoftmaxBlock - 1) / kSoftmaxBlock);
}

// `count` logits of which a tenth is -inf; a guard behind them.
std::vector<float> random_row(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 6.0f);
    std::vector<float> row;
    for (std::int64_t i = 0; i < count; ++i) row.push_back(random() % 10 == 0 ? -kInfinity : normal(random));
    row.push_back(kGuard);
    return row;
}

float largest(const std::vector<float>& row) {
    return std::max(*std::max_element(row.begin(), row.end() - 1), -3e38f);
}

TEST(SoftmaxKernels, WeightsAreExponentialsToAnUlp) {
    for (const SoftmaxKernels* set : sets()) {
        std::vector<float> x, weights;
        for (float at = 0.0f; at > -87.2f; at -= 0.0037f) x.push_back(at);
        weights.resize(x.size());
        set->weights(x.data(), static_cast<std::int64_t>(x.size()), 0.0f, 1.0f, weights.data());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double wanted = std::exp(static_cast<double>(x[i]));
            ASSERT_NEAR(static_cast<double>(weights[i]), wanted, 2e-7 * wanted) << set->name << " " << x[i];
        }
        EXPECT_EQ(weights[0], 1.0f);
        const std::vector<float> edges = {-87.4f, -1e30f, -kInfinity, kNan};
        set->weights(edges.data(), 4, 0.0f, 1.0f, weights.data());
        for (const std::size_t i : {0u, 1u, 2u}) EXPECT_EQ(weights[i], 0.0f) << set->name;
        EXPECT_TRUE(std::isnan(weights[3])) << set->name;
    }
}

TEST(SoftmaxKernels, MaximaAndSumsOfBlocks) {
    for (const SoftmaxKernels* set : sets()) {
        for (const std::int64_t count : kCounts) {
            const std::vector<float> row = random_row(count, static_cast<unsigned>(count));
            const std::size_t blocks = blocks_of(count);
            std::vector<float> max(blocks + 1, kGuard), sums = max, weighted = max;
            set->block_max(row.data(), count, max.data());
            const float most = largest(row), inverse = 1.0f / 0.7f;
            set->block_sums(row.data(), count, most, inverse, sums.data(), weighted.data());
            for (std::size_t block = 0; block < blocks; ++block) {
                float best = -kInfinity;
                double sum = 0, times_z = 0;
                const auto begin = static_cast<std::int64_t>(block) * kSoftmaxBlock;
                for (std::int64_t i = begin; i < std::min(count, begin + kSoftmaxBlock); ++i) {
                    const float x = row[static_cast<std::size_t>(i)];
                    best = std::max(best, x);
                    const double z = (static_cast<double>(x) - static_cast<double>(most)) / 0.7;
                    sum += std::exp(z);
                    if (std::isfinite(z)) times_z += std::exp(z) * z;
                }
                EXPECT_EQ(max[block], best) << set->name << " " << count;
                EXPECT_NEAR(static_cast<double>(sums[block]), sum, 2e-6 * sum) << set->name << " " << count;
                EXPECT_NEAR(static_cast<double>(weighted[block]), times_z, 1e-5 * (sum + std::abs(times_z)));
            }
            for (const auto& guarded : {max, sums, weighted}) EXPECT_EQ(guarded.back(), kGuard);
        }
    }
}

// Wherever in a row: in a full vector, in the last ones.
TEST(SoftmaxKernels, ANanStaysVisibleAndIsNoMaximum) {
    for (const SoftmaxKernels* set : sets()) {
        for (const std::size_t at : {0u, 7u, 15u, 16u, 1030u, 1040u}) {
            std::vector<float> row = random_row(1041, 3);
            row[at] = kNan;
            float max[2], sums[2], weighted[2];
            set->block_max(row.data(), 1041, max);
            EXPECT_FALSE(std::isnan(max[0]) || std::isnan(max[1])) << set->name << " " << at;
            set->block_sums(row.data(), 1041, 20.0f, 1.0f, sums, weighted);
            EXPECT_TRUE(std::isnan(sums[at / 1024])) << set->name << " " << at;
            EXPECT_FALSE(std::isnan(sums[1 - at / 1024])) << set->name << " " << at;
            std::vector<float> gradient = row;
            set->gradient(gradient.data(), 1041, 1.0f, 20.0f, 1.0f);
            EXPECT_TRUE(std::isnan(gradient[at])) << set->name << " " << at;
            set->entropy_gradient(row.data(), 1041, 1.0f, 20.0f, 1.0f, 1.0f, 1.0f);
            EXPECT_TRUE(std::isnan(row[at])) << set->name << " " << at;
        }
    }
}

TEST(SoftmaxKernels, Gradients) {
    for (const SoftmaxKernels* set : sets()) {
        for (const std::int64_t count : kCounts) {
            const std::vector<float> row = random_row(count, static_cast<unsigned>(count));
            const float lse = largest(row) + 0.5f, factor = 0.3f, spread = -1.25f, entropy = 1.5f;
            std::vector<float> plain = row, with_entropy = row;
            set->gradient(plain.data(), count, 1.0f, lse, factor);
            set->entropy_gradient(with_entropy.data(), count, 1.0f, lse, factor, spread, entropy);
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                const double logp = static_cast<double>(row[i]) - static_cast<double>(lse);
                const double p = std::exp(logp);
                EXPECT_NEAR(static_cast<double>(plain[i]), -0.3 * p, 4e-6 * p) << set->name << " " << i;
                const double wanted = p > 0 ? -p * (0.3f - 1.25 * (logp + 1.5)) : 0.0;
                EXPECT_NEAR(static_cast<double>(with_entropy[i]), wanted, 1e-5 * (p + std::abs(wanted)))
                    << set->name << " " << i;
            }
            EXPECT_EQ(plain.back(), kGuard);
            EXPECT_EQ(with_entropy.back(), kGuard);
        }
    }
}

TEST(SoftmaxKernels, TokensBetween) {
    for (const SoftmaxKernels* set : sets()) {
        for (const std::int64_t count : kCounts) {
            std::mt19937 random(static_cast<unsigned>(count));
            std::vector<float> weights(static_cast<std::size_t>(count));
            for (float& weight : weights) weight = std::exp2(-static_cast<float>(random() % 12));
            std::vector<std::int32_t> wanted, found(weights.size());
            for (std::size_t i = 0; i < weights.size(); ++i) {
                if (weights[i] >= 0.03125f && weights[i] < 0.25f)
                    wanted.push_back(static_cast<std::int32_t>(i));
            }
            found.resize(set->tokens_between(weights.data(), count, 0.03125f, 0.25f, found.data()));
            EXPECT_EQ(found, wanted) << set->name << " " << count;
        }
    }
}

// Both have fused multiply-adds, and sums have sixteen lanes in either.
TEST(SoftmaxKernels, Avx2AndAvx512GiveTheSameBits) {
    if (!runs_v4()) return;
    const std::vector<float> row = random_row(3001, 5);
    const auto all_of = [&](const SoftmaxKernels& set) {
        std::vector<float> sums(3), weighted(3), weights(3001), gradient = row, with_entropy = row;
        set.block_sums(row.data(), 3001, largest(row), 1.3f, sums.data(), weighted.data());
        set.weights(row.data(), 3001, largest(row), 1.3f, weights.data());
        set.gradient(gradient.data(), 3001, 1.3f, 30.0f, 0.7f);
        set.entropy_gradient(with_entropy.data(), 3001, 1.3f, 30.0f, 0.7f, 0.2f, 3.0f);
        return std::vector{sums, weighted, weights, gradient, with_entropy};
    };
    EXPECT_EQ(all_of(kSoftmaxAvx2), all_of(kSoftmaxAvx512));
}

}  // namespace
}  // namespace tandem::ops::detail
