// Figures of a run: rollout statistics, pass@k, model FLOPs.
#include <gmock/gmock.h>

#include <cmath>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/model/parameters.h"
#include "trainer/loop/flops.h"
#include "trainer/main/sync_memory.h"
#include "trainer/rollout/statistics.h"

namespace tandem::trainer {
namespace {

TEST(Statistics, OfABatchOfTwoGroups) {
    Rollout rollout;
    rollout.rewards = {0, 1, 1, 0, 0.5, 0.5, 0.5, 0.5};
    for (std::size_t i = 0; i < 8; ++i) {
        Completion completion{Tokens(i + 1), std::vector<float>(i + 1), i < 4 ? 3 : 5, i == 7};
        rollout.completions.push_back(completion);
    }
    const RolloutStatistics s = statistics_of(rollout, 4, 6);
    EXPECT_EQ(s.reward_mean, 0.5);
    EXPECT_NEAR(s.reward_std, std::sqrt(0.125), 1e-12);
    EXPECT_EQ(s.reward_min, 0);
    EXPECT_EQ(s.reward_max, 1);
    EXPECT_EQ(s.length_mean, 4.5);
    EXPECT_EQ(s.length_max, 8);
    EXPECT_EQ(s.truncated, 0.125);
    EXPECT_EQ(s.without_signal, 0.5);
    EXPECT_EQ(s.staleness, 2);  // versions 3 and 5, seen from 6
    EXPECT_THROW(statistics_of(rollout, 3, 6), InvalidArgument);
}

// The oracle: all subsets of k of n samples.
double pass_at_k_by_counting(int n, int c, int k) {
    int all = 0, passed = 0;
    for (int subset = 0; subset < 1 << n; ++subset) {
        if (__builtin_popcount(static_cast<unsigned>(subset)) != k) continue;
        ++all;
        passed += (subset & ((1 << c) - 1)) != 0 ? 1 : 0;
    }
    return static_cast<double>(passed) / all;
}

TEST(PassAtK, IsTheShareOfSubsetsWithAPass) {
    for (int n = 1; n <= 8; ++n) {
        for (int c = 0; c <= n; ++c) {
            for (int k = 1; k <= n; ++k)
                EXPECT_NEAR(pass_at_k(n, c, k), pass_at_k_by_counting(n, c, k), 1e-12) << n << c << k;
        }
    }
    EXPECT_THROW(pass_at_k(4, 5, 1), InvalidArgument);
    EXPECT_THROW(pass_at_k(4, 1, 5), InvalidArgument);
}

TEST(Flops, AreThoseOfTheProducts) {
    model::ModelConfig c;
    c.vocab_size = 16;
    c.hidden_size = 8;
    c.intermediate_size = 24;
    c.num_hidden_layers = 3;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 6;
    c.qk_norm = false;
    for (const bool tied : {true, false}) {
        c.tie_word_embeddings = tied;
        // By hand: two FLOPs a weight of each product and token, three times (forward, and twice backward);
        // causal scores and their product with the values, over half the square on average.
        const double s = 10;
        const double layer = 8 * 24 + 2 * 8 * 12 + 24 * 8 + 3 * 8 * 24;  // q, k and v, o, feed-forward
        const double products = 3 * layer + 16 * 8;
        const double norms = 3 * 2 * 8 + 8;  // counted as weights too: that is the convention
        const double attention = 3 * 2 * (2 * 4 * 6 * s * s / 2);
        const std::vector<std::int64_t> lengths = {10};
        EXPECT_NEAR(training_flops(c, lengths), 6 * s * (products + norms) + 3 * attention, 1e-6);
    }
    const std::vector<std::int64_t> two = {10, 20}, first = {10}, second = {20};
    EXPECT_EQ(training_flops(c, two), training_flops(c, first) + training_flops(c, second));
}

TEST(Flops, TheSpeedOfLightOfAGpuIsNotItsCaches) {
    constexpr std::uint64_t kGib = std::uint64_t{1} << 30, kMib = std::uint64_t{1} << 20;
    EXPECT_EQ(speed_of_light_bytes(false, 0), 64 * kMib);
    EXPECT_EQ(speed_of_light_bytes(true, 100 * kGib), kGib);
    EXPECT_EQ(speed_of_light_bytes(true, 4 * kGib), kGib / 2);
    EXPECT_EQ(speed_of_light_bytes(true, 0), 64 * kMib);
}

TEST(Flops, TheProductRateIsTheSameOnEveryRank) {
    std::vector<double> rates(2);
    comm::run_threads(2, [&](const std::shared_ptr<comm::Communicator>& world) {
        rates[static_cast<std::size_t>(world->rank())] = measure_product_rate(*world, {}, DType::float32);
    });
    EXPECT_EQ(rates[0], rates[1]);
    EXPECT_GT(rates[0], 1e8);
    EXPECT_LT(rates[0], 1e14);
}

}  // namespace
}  // namespace tandem::trainer
