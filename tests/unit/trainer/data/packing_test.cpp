// Packing: the golden partitions, and properties over random batches.
#include "trainer/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "common/error.h"

namespace tandem::trainer {
namespace {

using Lengths = std::vector<std::int64_t>;
using Partition = std::vector<std::vector<int>>;

TEST(KarmarkarKarp, GoldenPartitions) {
    EXPECT_EQ(karmarkar_karp(Lengths{5, 9, 3, 7, 1, 8}, 2), (Partition{{1, 3, 4}, {0, 2, 5}}));
    EXPECT_EQ(karmarkar_karp(Lengths{100, 100, 100, 100}, 2), (Partition{{0, 3}, {1, 2}}));
    EXPECT_EQ(karmarkar_karp(Lengths{10, 20, 30, 40, 50}, 4), (Partition{{4}, {3}, {0, 1}, {2}}));
}

TEST(KarmarkarKarp, FewerItemsThanParts) {
    const Partition partition = karmarkar_karp(Lengths{4}, 3);
    EXPECT_EQ(partition, (Partition{{0}, {}, {}}));
    EXPECT_EQ(karmarkar_karp(Lengths{}, 2), (Partition{{}, {}}));
}

TEST(FirstFitDecreasing, FillsBinsLargestFirst) {
    EXPECT_EQ(first_fit_decreasing(Lengths{2, 7, 3, 8}, 10), (Partition{{0, 3}, {1, 2}}));
    EXPECT_THROW(first_fit_decreasing(Lengths{11}, 10), InvalidArgument);
}

using Plan = std::vector<std::vector<Pack>>;

void expect_whole(const Plan& plan, const Lengths& lengths, int dp, std::int64_t capacity) {
    ASSERT_EQ(plan.size(), static_cast<std::size_t>(dp));
    std::vector<int> seen;
    for (const auto& packs : plan) {
        ASSERT_EQ(packs.size(), plan.front().size());
        ASSERT_GE(packs.size(), 1u);
        for (const Pack& pack : packs) {
            std::int64_t tokens = 0;
            for (const int sample : pack.samples) tokens += lengths[static_cast<std::size_t>(sample)];
            ASSERT_EQ(tokens, pack.tokens);
            ASSERT_LE(tokens, capacity);
            ASSERT_TRUE(std::is_sorted(pack.samples.begin(), pack.samples.end()));
            seen.insert(seen.end(), pack.samples.begin(), pack.samples.end());
        }
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(seen, all);
}

// Karmarkar-Karp alone may overfill a pack: its result stands only where every pack fits.
TEST(Packing, EverySampleOnceWithinCapacityAndEqualCounts) {
    std::mt19937 random(7);
    int overfull = 0;
    for (int round = 0; round < 300; ++round) {
        const int dp = 1 + static_cast<int>(random() % 4);
        const std::int64_t capacity = 8 + static_cast<std::int64_t>(random() % 60);
        Lengths lengths(random() % 40);
        for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random()) % capacity;
        const Plan plan = plan_packs(lengths, dp, capacity);
        expect_whole(plan, lengths, dp, capacity);
        if (dp != 1) continue;
        for (const auto& part : karmarkar_karp(lengths, static_cast<int>(plan[0].size()))) {
            std::int64_t tokens = 0;
            for (const int sample : part) tokens += lengths[static_cast<std::size_t>(sample)];
            overfull += tokens > capacity ? 1 : 0;
        }
    }
    EXPECT_GT(overfull, 0);
}

TEST(FixedPacks, EverySampleOnceAndNoMoreThanAskedInAPack) {
    std::mt19937 random(8);
    for (int round = 0; round < 200; ++round) {
        const int dp = 1 + static_cast<int>(random() % 4);
        const auto per_pack = 1 + static_cast<std::int64_t>(random() % 5);
        Lengths lengths(random() % 40);
        for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random() % 30);
        const Plan plan = plan_fixed_packs(lengths, dp, per_pack, per_pack * 30);
        expect_whole(plan, lengths, dp, per_pack * 30);
        const auto share = (static_cast<std::int64_t>(lengths.size()) + dp - 1) / dp;
        EXPECT_EQ(plan[0].size(),
                  static_cast<std::size_t>(std::max<std::int64_t>(1, (share + per_pack - 1) / per_pack)));
        for (const auto& packs : plan) {
            std::int64_t samples = 0;
            for (const Pack& pack : packs) {
                EXPECT_LE(pack.samples.size(), static_cast<std::size_t>(per_pack));
                samples += static_cast<std::int64_t>(pack.samples.size());
            }
            EXPECT_LE(share - samples, 1);
        }
    }
}

TEST(FixedPacks, BalancesAndRefusesWhatDoesNotFit) {
    const Plan plan = plan_fixed_packs(Lengths{8, 7, 6, 5, 4, 3, 2, 1}, 2, 2, 100);
    for (const auto& packs : plan) {
        for (const Pack& pack : packs) EXPECT_EQ(pack.tokens, 9);
    }
    EXPECT_THROW(plan_fixed_packs(Lengths{8, 7, 6}, 1, 3, 20), InvalidArgument);
    EXPECT_THROW(plan_fixed_packs(Lengths{8, 21}, 1, 1, 20), InvalidArgument);
    EXPECT_THROW(plan_fixed_packs(Lengths{8}, 1, 0, 20), InvalidArgument);
}

// A pipeline wants so many packs, or more: all are made, evenly, and some stay empty where there are too few samples.
TEST(Packing, AsManyPacksAsAreAdmitted) {
    std::mt19937 random(4);
    for (int round = 0; round < 200; ++round) {
        const int dp = 1 + static_cast<int>(random() % 3);
        Lengths lengths(random() % 30);
        for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random() % 20);
        std::vector<int> needed;
        const PackCount multiple_of_4 = [&](int count) {
            needed.push_back(count);
            return (count + 3) / 4 * 4;
        };
        for (const bool fixed : {false, true}) {
            const Plan plan = fixed ? plan_fixed_packs(lengths, dp, 3, 60, multiple_of_4)
                                    : plan_packs(lengths, dp, 40, multiple_of_4);
            expect_whole(plan, lengths, dp, fixed ? 60 : 40);
            EXPECT_EQ(plan[0].size(), static_cast<std::size_t>((needed.back() + 3) / 4 * 4));
            const std::size_t alone =
                (fixed ? plan_fixed_packs(lengths, dp, 3, 60) : plan_packs(lengths, dp, 40))[0].size();
            EXPECT_EQ(static_cast<std::size_t>(needed.back()), alone);
        }
    }
    const Plan plan = plan_packs(Lengths{6, 6, 6, 6}, 1, 100, [](int) { return 4; });
    for (const Pack& pack : plan[0]) EXPECT_EQ(pack.tokens, 6);
}

TEST(Packing, BalancesTokensOverRanksAndPacks) {
    Lengths lengths(64);
    std::mt19937 random(3);
    for (auto& length : lengths) length = 20 + static_cast<std::int64_t>(random() % 80);
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    const auto plan = plan_packs(lengths, 4, 600);
    for (const auto& packs : plan) {
        std::int64_t tokens = 0;
        for (const Pack& pack : packs) tokens += pack.tokens;
        EXPECT_NEAR(static_cast<double>(tokens), static_cast<double>(total) / 4, 20);
    }
}

TEST(Packing, NamesTheSampleThatIsTooLong) {
    try {
        plan_packs(Lengths{4, 9, 33}, 2, 32);
        FAIL() << "a sample longer than a pack was taken";
    } catch (const InvalidArgument& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("sample 2 needs 33 tokens"), std::string::npos) << text;
        EXPECT_NE(text.find("32"), std::string::npos) << text;
    }
    EXPECT_THROW(plan_packs(Lengths{4, 0}, 1, 32), InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer
