// A sweep on a made-up machine whose cores move.
#include "sync/bench/sweep_rounds.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace tandem::sync {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

TEST(SweepRounds, GoesThroughTheCacheOnlyWithWhatFits) {
    const auto ways = [](int least_depth) {
        std::size_t through = 0, past = 0;
        for (const Buckets& one : SweepRounds::grid(32 * kMebibyte, least_depth)) {
            ++(one.past_cache ? past : through);
            const std::size_t staging = one.bytes * static_cast<std::size_t>(one.depth);
            EXPECT_TRUE(one.past_cache || staging <= 16 * kMebibyte) << staging;
            EXPECT_GE(one.depth, least_depth);
        }
        return std::pair(past, through);
    };
    EXPECT_EQ(ways(1), std::pair(std::size_t{32}, std::size_t{15}));
    EXPECT_EQ(ways(2), std::pair(std::size_t{24}, std::size_t{10}));
}

// Candidate 1 takes 60 ms where cores share a cache and 50 where they are apart, candidate 2 the other way round, and what
// is chosen takes 55 in either. The state changes after every seventh push.
TEST(SweepRounds, CountsOneStateAloneAndRepeatsWhatWasSeenInAnother) {
    SweepRounds rounds({{kMebibyte, 2, true}, {2 * kMebibyte, 3, false}});
    int pushes = 0;
    const auto state = [](int push) { return push / 7 % 2 == 0 ? Cores::share_cache : Cores::apart; };
    Cores now = Cores::unknown;
    for (int round = 0; round < SweepRounds::kRounds && !rounds.done(); ++round) {
        for (std::size_t i = 0; i < rounds.size(); ++i) {
            if (!rounds.wants(i, now)) continue;
            for (int push = 0; push < 2; ++push, ++pushes) {
                const bool apart = state(pushes) == Cores::apart;
                const double ms = i == 0 ? 55 : (i == 1) == apart ? 50 : 60;
                rounds.add(i, state(pushes), state(pushes + 1), {ms - 10, ms, apart ? 25.0 : 40.0});
                now = state(pushes + 1);
            }
        }
    }
    rounds.chose({4 * kMebibyte, 2, true});
    rounds.predict(2, 51);
    EXPECT_TRUE(rounds.done());
    const nlohmann::json result = rounds.result();
    const bool apart = result.at("sweep_cores") == "apart";
    ASSERT_EQ(result.at("sweep").size(), 2u);
    EXPECT_EQ(result.at("sweep").at(0).at("push_ms"), apart ? 50 : 60);
    EXPECT_EQ(result.at("sweep").at(1).at("push_ms"), apart ? 60 : 50);
    EXPECT_EQ(result.at("sweep").at(1).at("push_ratio"), apart ? 60 / 25.0 : 50 / 40.0);
    EXPECT_EQ(result.at("sweep").at(1).at("past_cache"), false);
    EXPECT_EQ(result.at("sweep").at(1).at("predicted_push_ms"), 51);
    EXPECT_FALSE(result.at("sweep").at(0).contains("predicted_push_ms"));
    EXPECT_EQ(result.at("sweep_chosen").at("bucket_bytes"), 4 * kMebibyte);
    EXPECT_EQ(result.at("sweep_chosen").at("median_ms"), 45);
    std::size_t counted = result.at("sweep_chosen").at("syncs").get<std::size_t>();
    for (const auto& one : result.at("sweep")) {
        EXPECT_GE(one.at("syncs"), SweepRounds::kEnough);
        counted += one.at("syncs").get<std::size_t>();
    }
    EXPECT_EQ(result.at("sweep_dropped").get<std::size_t>() + counted, static_cast<std::size_t>(pushes));
}

// Nobody is fast because the copies beside it were slow.
TEST(SweepRounds, HoldsAllToOneSpeedOfLight) {
    SweepRounds rounds({{kMebibyte, 2, true}, {2 * kMebibyte, 2, true}});
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        for (std::size_t sample = 0; sample < SweepRounds::kEnough; ++sample)
            rounds.add(i, Cores::apart, Cores::apart,
                       i == 1 ? SweepSample{90, 100, 400} : SweepSample{45, 50, 25});
    }
    const nlohmann::json result = rounds.result();
    EXPECT_EQ(result.at("sweep").at(0).at("push_ratio"), 4);
    EXPECT_EQ(result.at("sweep").at(0).at("speed_of_light_ratio"), 90 / 25.0);
    EXPECT_EQ(result.at("sweep").at(1).at("push_ratio"), 2);
    EXPECT_EQ(result.at("sweep_chosen").at("push_ratio"), 2);
}

TEST(SweepRounds, ThatNeverSeesAStateTwiceHasNothingToSay) {
    SweepRounds rounds({{kMebibyte, 2, true}});
    for (int i = 0; i < 10; ++i) rounds.add(1, Cores::apart, Cores::share_cache, {1, 2, 3});
    EXPECT_FALSE(rounds.done());
    EXPECT_TRUE(rounds.result().at("sweep").empty());
    EXPECT_EQ(rounds.result().at("sweep_dropped"), 10);
}

}  // namespace
}  // namespace tandem::sync
