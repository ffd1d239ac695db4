// Each weight in one class, and the classes in the order of the weights.
#include "common/ops/cpu/weight_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <span>
#include <vector>

namespace tandem::ops::cpu {
namespace {

// Of all sizes, and at each border of a class and beside it.
std::vector<float> weights_of_all_sizes() {
    std::mt19937 random(1);
    std::vector<float> weights = {0.0f, 1e-45f, 0x1p-126f, std::nextafter(0x1p-126f, 0.0f), 1.0f};
    for (std::uint32_t bits = 0x1f000000; bits <= 0x3f800000; bits += 1 << 17) {
        for (const std::uint32_t near : {bits - 1, bits, bits + 1})
            if (near <= 0x3f800000) weights.push_back(std::bit_cast<float>(near));
    }
    for (int i = 0; i < 5000; ++i)
        weights.push_back(std::ldexp(std::uniform_real_distribution<float>(0, 1)(random), -(i % 80)));
    std::shuffle(weights.begin(), weights.end(), random);
    return weights;
}

void expect_each_in_one(std::span<const float> weights, std::size_t count, float least = 0.0f) {
    WeightClasses classes;
    classes.count(weights, least);
    ASSERT_EQ(classes.size(), count);
    std::vector<int> seen(weights.size());
    std::vector<Weighted> tokens;
    float below = 2.0f;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        classes.collect(i, tokens);
        ASSERT_EQ(classes.tokens(i), tokens.size()) << i;
        double mass = 0;
        for (const Weighted& token : tokens) {
            ASSERT_EQ(token.weight, weights[static_cast<std::size_t>(token.token)]);
            ASSERT_GE(token.weight, classes.least(i)) << i;
            ASSERT_LT(token.weight, below) << i;
            ++seen[static_cast<std::size_t>(token.token)];
            mass += static_cast<double>(token.weight);
        }
        ASSERT_DOUBLE_EQ(classes.mass(i), mass) << i;
        below = classes.least(i);
    }
    for (std::size_t at = 0; at < weights.size(); ++at)
        ASSERT_EQ(seen[at], weights[at] >= std::max(least, 0x1p-126f) ? 1 : 0) << weights[at];
}

TEST(WeightClasses, EachWeightIsInOneInTheirOrder) {
    const std::vector<float> weights = weights_of_all_sizes();
    ASSERT_NO_FATAL_FAILURE(expect_each_in_one(weights, 4096));
    for (const float least : {0x1p-126f, 1e-9f, 0x1p-9f, 0.0333f, 1.0f})
        ASSERT_NO_FATAL_FAILURE(expect_each_in_one(weights, 4096, least)) << least;
    ASSERT_NO_FATAL_FAILURE(expect_each_in_one(std::span(weights).first(1025), 4096));
    ASSERT_NO_FATAL_FAILURE(expect_each_in_one(std::span(weights).first(1024), 1));
    ASSERT_NO_FATAL_FAILURE(expect_each_in_one(std::span(weights).first(1), 1));
}

TEST(WeightClasses, MassIsFoundAsAWalkFromTheLikeliestFindsIt) {
    const std::vector<float> weights = {0.25f, 1.0f, 0.5f, 0.25f, 0.125f};
    const std::vector<std::int32_t> order = {1, 2, 0, 3, 4};  // the lowest id among equals
    for (const double target : {0.0, 0.5, 0.999, 1.0, 1.25, 1.5, 1.7, 1.75, 2.0, 2.1, 3.0}) {
        std::vector<Weighted> tokens;
        for (std::size_t i = 0; i < weights.size(); ++i)
            tokens.push_back({weights[i], static_cast<std::int32_t>(i)});
        std::size_t rank = 0;
        double before = 0;
        const auto weight_at = [&](std::size_t at) {
            return static_cast<double>(weights[static_cast<std::size_t>(order[at])]);
        };
        while (rank + 1 < order.size() && before + weight_at(rank) <= target) before += weight_at(rank++);
        const AtMass found = find_mass(tokens, target);
        EXPECT_EQ(found.rank, rank) << target;
        EXPECT_EQ(found.before, before) << target;
        EXPECT_EQ(tokens[found.rank].token, order[rank]) << target;
    }
}

}  // namespace
}  // namespace tandem::ops::cpu
