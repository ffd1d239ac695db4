// The cost model without a machine: what predictions must obey, against a pipeline played in tiny ticks, and
// which buckets made-up costs lead to; how costs are fitted, written down and kept.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "common/error.h"
#include "sync/cost/predict.h"
#include "sync/cost/store.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr std::size_t kGib = std::size_t{1} << 30;

Stage times(const Stage& stage, double longer) {
    return {stage.overhead_ms * longer, stage.cached_gbps / longer, stage.streamed_gbps / longer};
}

// GB/s in and beyond the cache.
Costs costs(double overhead_us, double cached, double streamed, double both_share) {
    Costs result;
    result.fill = result.load = {overhead_us * 1e-3, cached, streamed};
    result.both = {overhead_us * 1e-3 * both_share, cached / both_share, streamed / both_share};
    result.lockstep = result.both;
    result.turns = times(result.fill, 2);
    result.hash_gbps = 40;
    result.copy_gbps = 20;
    result.fixed_ms = 0.1;
    result.cache_bytes = 32 * kMib;
    return result;
}
Costs shared_cores() {
    return costs(20, 30, 20, 2);
}
Costs own_cores() {
    return costs(20, 30, 20, 1);
}

// The order of gather.cpp in ticks: fills one after the other, each handed over when the next slot is free.
double ticked_total(const Costs& c, std::size_t bytes, std::size_t bucket, int depth) {
    const double tick = 2e-4;
    const auto size = static_cast<double>(std::min(bytes, bucket));
    const bool cached = size * depth <= static_cast<double>(c.cache_bytes) / 2;
    const int buckets = static_cast<int>((bytes + bucket - 1) / bucket);
    const auto part = [&](int b) {
        return b + 1 < buckets ? size : static_cast<double>(bytes) - size * (buckets - 1);
    };
    const double fill = c.fill.ms(size, cached), load = c.load.ms(size, cached);
    const double both =
        std::max({fill, load, c.both.ms(size, cached), depth == 2 ? c.lockstep.ms(size, cached) : 0.0});
    const double speed = std::min(fill, load) / (both - std::max(fill, load) + std::min(fill, load));
    int filled = std::min(depth - 1, buckets), handed = filled, loaded = 0;
    double fill_done = 0, load_done = 0, time = 0;
    for (; loaded < buckets; time += tick) {
        const bool filling = filled < buckets && filled == handed, loading = loaded < handed;
        const double step = tick * (filling && loading ? speed : 1);
        if (filling && (fill_done += step) >= c.fill.ms(part(filled), cached)) ++filled, fill_done = 0;
        if (loading && (load_done += step) >= c.load.ms(part(loaded), cached)) ++loaded, load_done = 0;
        // Bucket `handed` is full; the next one's slot is that of bucket handed + 1 - depth.
        if (filled > handed && loaded >= handed + 2 - depth) handed = filled;
    }
    return time + c.fixed_ms;
}

TEST(Predict, AgreesWithAPipelinePlayedInTicks) {
    std::mt19937 random(7);
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    for (int i = 0; i < 60; ++i) {
        Costs c = shared_cores();
        c.fill = {uniform(0.005, 0.2), uniform(5, 60), uniform(5, 60)};
        c.load = {uniform(0.005, 0.2), uniform(5, 60), uniform(5, 60)};
        c.both = {uniform(0.005, 0.4), uniform(3, 60), uniform(3, 60)};
        c.lockstep = times(c.both, uniform(0.9, 1.5));
        const auto bytes = static_cast<std::size_t>(uniform(1, 200) * kMib);
        const std::size_t bucket = kMib << (random() % 7);
        const int depth = 2 + static_cast<int>(random() % 3);
        const double expected = ticked_total(c, bytes, bucket, depth);
        const double ticks =
            3e-4 * static_cast<double>(2 * bytes / bucket + 4);  // each end is up to one late
        EXPECT_NEAR(predict_gather(c, bytes, bucket, depth).total_ms, expected, ticks)
            << bytes << " " << bucket << " " << depth;
    }
}

TEST(Predict, ReachesItsLimits) {
    // Cores of their own: filling hides behind loading.
    const Costs free = own_cores();
    const double load_ms = free.load.ms(64 * kMib, false);
    EXPECT_NEAR(predict_gather(free, kGib, 64 * kMib, 3).total_ms, 16 * load_ms + 0.1, 1e-6);
    // Shared cores: all work adds up, less what was filled before the pause.
    const Costs shared = shared_cores();
    EXPECT_NEAR(predict_gather(shared, kGib, 64 * kMib, 3).total_ms, (14 + 16) * load_ms + 0.1, 1e-6);
    EXPECT_NEAR(predict_gather(shared, kGib, 64 * kMib, 3).prepare_ms, 2 * load_ms, 1e-6);
    // One bucket, however large its slot: filled before, loaded after.
    const Prediction one = predict_gather(shared, kMib, 128 * kMib, 4);
    EXPECT_NEAR(one.prepare_ms, shared.fill.ms(kMib, true), 1e-9);
    EXPECT_NEAR(one.total_ms, shared.load.ms(kMib, true) + 0.1, 1e-9);
    EXPECT_EQ(predict_gather(shared, 0, kMib, 2).total_ms, 0.1);
    // One slot: the first bucket is filled before, every other one fills and loads; the last is half a one.
    Costs turns = shared;
    turns.turns = {0.5, 12, 7};
    const Prediction by_turns = predict_gather(turns, 10 * kMib + kMib / 2, kMib, 1);
    EXPECT_NEAR(by_turns.prepare_ms, turns.fill.ms(kMib, true), 1e-9);
    EXPECT_NEAR(
        by_turns.total_ms,
        turns.load.ms(kMib, true) + 9 * turns.turns.ms(kMib, true) + turns.turns.ms(kMib / 2, true) + 0.1,
        1e-9);
    EXPECT_EQ(predict_gather(shared, 0, kMib, 1).prepare_ms, 0);
    EXPECT_EQ(predict_gather(shared, 0, kMib, 1).total_ms, 0.1);
    const Prediction direct = predict_direct(shared, kGib, 64 * kMib);
    EXPECT_NEAR(direct.total_ms, 16 * 0.02 + kGib / 20e6 + 0.1, 1e-6);
    EXPECT_NEAR(direct.prepare_ms, kGib / 40e6, 1e-6);
}

// A relay at any depth: a core fills or loads, but for what was filled before the pause.
TEST(Predict, TakesARelayForTurnsAtAnyDepth) {
    Costs costs = shared_cores();
    costs.relay = {0.01, 15, 7};
    for (const int depth : {1, 2, 4}) {
        const Prediction push = predict_gather(costs, 10 * kMib + kMib / 2, kMib, depth);
        EXPECT_NEAR(push.prepare_ms, depth * costs.fill.ms(kMib, true), 1e-9);
        EXPECT_NEAR(push.total_ms,
                    depth * costs.load.ms(kMib, true) + (10 - depth) * costs.relay.ms(kMib, true) +
                        costs.relay.ms(kMib / 2, true) + 0.1,
                    1e-9);
    }
    const Prediction past = predict_gather(costs, 10 * kMib, kMib, 1, true);
    EXPECT_NEAR(past.total_ms, costs.load.ms(kMib, false) + 9 * costs.relay.ms(kMib, false) + 0.1, 1e-9);
    EXPECT_NEAR(predict_gather(costs, kMib / 2, kMib, 3).prepare_ms, costs.fill.ms(kMib / 2, true), 1e-9);
    EXPECT_EQ(predict_gather(costs, 0, kMib, 1).total_ms, 0.1);
    // What a bucket costs is small, so a small one will do; nothing is won by more slots.
    const Buckets chosen = choose_buckets(costs, 8 * kGib);
    EXPECT_EQ(chosen.depth, 1);
    EXPECT_LE(chosen.bytes, 4 * kMib);
    EXPECT_FALSE(chosen.past_cache);
}

TEST(Predict, GrowsWithBytesOverheadAndSlowness) {
    const auto total = [](const Costs& c, std::size_t bytes, int depth) {
        return predict_gather(c, bytes, 4 * kMib, depth).total_ms;
    };
    double last = 0;
    for (std::size_t bytes = kMib; bytes < kGib; bytes += 37 * kMib + 4096) {
        EXPECT_GT(total(shared_cores(), bytes, 3), last);
        last = total(shared_cores(), bytes, 3);
    }
    last = 0;
    for (const double overhead : {0.0, 1.0, 20.0, 300.0, 5000.0}) {
        const double ms = total(costs(overhead, 30, 20, 2), kGib, 3);
        EXPECT_GT(ms, last);
        last = ms;
    }
    for (const double gbps : {100.0, 30.0, 10.0, 1.0})
        EXPECT_LT(total(costs(20, 2 * gbps, gbps, 2), kGib, 3), total(costs(20, gbps, gbps / 2, 2), kGib, 3));
    EXPECT_LE(total(shared_cores(), kGib, 3), total(shared_cores(), kGib, 2));
    Costs jittery = shared_cores();
    jittery.lockstep = times(jittery.both, 1.3);
    EXPECT_GT(total(jittery, kGib, 2), 1.2 * total(shared_cores(), kGib, 2));
    EXPECT_EQ(total(jittery, kGib, 3), total(shared_cores(), kGib, 3));
}

TEST(Choose, FollowsTheCosts) {
    // A link with a large overhead for each bucket: large buckets.
    EXPECT_GE(choose_buckets(costs(5000, 1, 1, 1), 8 * kGib).bytes, 64 * kMib);
    // Much to be won in the cache: all slots stay in half of it.
    const Buckets cached = choose_buckets(costs(5, 40, 10, 2), 8 * kGib);
    EXPECT_LE(cached.bytes * static_cast<std::size_t>(cached.depth), 16 * kMib);
    EXPECT_FALSE(cached.past_cache);
    // Much to be won past it, on a machine whose cache is shared with others, say: past it, and no larger for
    // that.
    const Buckets past = choose_buckets(costs(5, 10, 40, 2), 8 * kGib);
    EXPECT_LE(past.bytes * static_cast<std::size_t>(past.depth), 16 * kMib);
    EXPECT_TRUE(past.past_cache);
    // Nothing to be won by anything: as little staging as there can be.
    const Buckets least = choose_buckets(costs(0, 20, 20, 2), 8 * kGib);
    EXPECT_EQ(least.bytes, kMib);
    EXPECT_EQ(least.depth, 1);
    // 16 MiB of staging are no more than 12: two large slots rather than three small ones.
    Costs alike = costs(10, 40, 10, 1);
    alike.lockstep.overhead_ms *= 2;
    const Buckets few = choose_buckets(alike, 8 * kGib);
    EXPECT_EQ(few.bytes, 8 * kMib);
    EXPECT_EQ(few.depth, 2);
    // Cores of their own: never by turns; depth 3 where depth 2 is held up.
    EXPECT_EQ(choose_buckets(costs(5, 40, 10, 1), 8 * kGib).depth, 2);
    Costs jittery = costs(5, 40, 10, 1);
    jittery.lockstep = times(jittery.both, 1.5);
    EXPECT_EQ(choose_buckets(jittery, 8 * kGib).depth, 3);
}

TEST(Choose, IsWithinATwentiethOfTheFastestAndKeepsWishes) {
    std::mt19937 random(11);
    for (int i = 0; i < 40; ++i) {
        Costs c = costs(static_cast<double>(random() % 2000), 1 + static_cast<double>(random() % 50),
                        1 + static_cast<double>(random() % 50), 1 + static_cast<double>(random() % 2));
        const std::size_t bytes = (32 + random() % 2000) * kMib;
        const auto push = [&](std::size_t bucket, int depth, bool past_cache) {
            const Prediction p = predict_gather(c, bytes, bucket, depth, past_cache);
            return p.prepare_ms + p.total_ms;
        };
        const Buckets chosen = choose_buckets(c, bytes);
        for (int depth = 1; depth <= 4; ++depth) {
            for (std::size_t bucket = kMib; bucket <= 128 * kMib; bucket *= 2) {
                for (const bool past_cache : {false, true}) {
                    EXPECT_LE(push(chosen.bytes, chosen.depth, chosen.past_cache),
                              1.05 * push(bucket, depth, past_cache) + 1e-9);
                }
            }
        }
        EXPECT_EQ(choose_buckets(c, bytes, {5 * kMib, 0}).bytes, 5 * kMib);
        EXPECT_EQ(choose_buckets(c, bytes, {0, 7}).depth, 7);
    }
}

TEST(Costs, AreFittedToWhatWasMeasured) {
    const Stage truth{0.03, 35, 18};
    const auto point = [&](std::size_t bytes, bool cached) {
        const auto b = static_cast<double>(bytes);
        return StagePoint{b, truth.ms(b, cached)};
    };
    const Stage found = fit_stage(point(kMib / 2, false), point(4 * kMib, false), point(4 * kMib, true));
    EXPECT_NEAR(found.overhead_ms, truth.overhead_ms, 1e-9);
    EXPECT_NEAR(found.cached_gbps, truth.cached_gbps, 1e-6);
    EXPECT_NEAR(found.streamed_gbps, truth.streamed_gbps, 1e-6);
    // Uneven measurements still give costs that exist.
    for (const auto& [small, large, cached] :
         std::vector<std::array<double, 3>>{{5, 1, 2}, {1, 1, 0.1}, {0.001, 9, 1}, {0, 0, 0}}) {
        const Stage odd = fit_stage({1e6, small}, {4e6, large}, {4e6, cached});
        EXPECT_GE(odd.overhead_ms, 0);
        EXPECT_GT(odd.cached_gbps, 0);
        EXPECT_GT(odd.streamed_gbps, 0);
        EXPECT_LE(odd.ms(4e6, false), std::max(large, 1e-6) * 1.001);
    }
}

// Ranks agree on what was measured because every reading of it is the same to the last bit.
TEST(Costs, ComeBackFromJsonBitForBit) {
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> any(0.001, 1000);
    for (int i = 0; i < 1000; ++i) {
        Costs costs;
        for (Stage* stage :
             {&costs.fill, &costs.load, &costs.both, &costs.lockstep, &costs.turns, &costs.relay})
            *stage = {any(random), any(random), any(random)};
        costs.hash_gbps = any(random);
        costs.copy_gbps = any(random);
        costs.fixed_ms = any(random);
        const nlohmann::json text = to_json(costs);
        const Costs back = costs_from_json(nlohmann::json::parse(text.dump()));
        EXPECT_EQ(back.fill.overhead_ms, costs.fill.overhead_ms);
        EXPECT_EQ(back.both.streamed_gbps, costs.both.streamed_gbps);
        EXPECT_EQ(to_json(back), text);
    }
}

TEST(Costs, ThatLackAFieldAreRefused) {
    const nlohmann::json whole = to_json(shared_cores());
    for (const auto& [key, value] : whole.items()) {
        nlohmann::json without = whole;
        without.erase(key);
        EXPECT_THROW(costs_from_json(without), InvalidArgument) << key;
    }
    nlohmann::json standing = whole;
    standing["load"]["cached_gbps"] = 0;
    EXPECT_THROW(costs_from_json(standing), InvalidArgument);
    EXPECT_THROW(costs_from_json("costs"), InvalidArgument);
    nlohmann::json half = whole;
    half["relay"]["cached_gbps"] = 3;
    EXPECT_THROW(costs_from_json(half), InvalidArgument);
    half["relay"]["streamed_gbps"] = 3;
    EXPECT_TRUE(costs_from_json(half).relays());
    EXPECT_FALSE(costs_from_json(whole).relays());
}

class StoreTest : public ::testing::Test {
  protected:
    StoreTest()
        : folder_(std::filesystem::temp_directory_path() / ("tandem-store-" + std::to_string(::getpid()))) {}
    ~StoreTest() override { std::filesystem::remove_all(folder_); }
    std::filesystem::path file() const { return folder_ / "deep" / "costs.json"; }
    std::filesystem::path folder_;
};

TEST_F(StoreTest, KeepsEachKeysCostsForAWeek) {
    Costs first = shared_cores(), second = own_cores();
    first.measured_at = 1'000'000;
    second.measured_at = 1'000'050;
    EXPECT_FALSE(stored_costs(file(), "a", 1'000'000));
    store_costs(file(), "a", first);
    store_costs(file(), "b", second);
    EXPECT_EQ(to_json(*stored_costs(file(), "a", 1'000'100)), to_json(first));
    EXPECT_EQ(to_json(*stored_costs(file(), "b", 1'000'100)), to_json(second));
    EXPECT_FALSE(stored_costs(file(), "c", 1'000'100));
    EXPECT_TRUE(stored_costs(file(), "a", 1'000'000 + kCostsValid.count()));
    EXPECT_FALSE(stored_costs(file(), "a", 1'000'001 + kCostsValid.count()));
    EXPECT_FALSE(stored_costs(file(), "a", 999'999)) << "measured in the future";
    const auto files = std::filesystem::directory_iterator(file().parent_path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing half written is left";
}

TEST_F(StoreTest, TakesADamagedFileForNone) {
    std::filesystem::create_directories(file().parent_path());
    for (const char* text : {"", "{", "[]", R"({"format": 4})", R"({"format": 3, "entries": {"a": {}}})",
                             R"({"format": 4, "entries": {"a": {"fill": 3}}})"}) {
        std::ofstream(file()) << text;
        EXPECT_FALSE(stored_costs(file(), "a", 10)) << text;
        store_costs(file(), "a", shared_cores());
        EXPECT_TRUE(stored_costs(file(), "a", 10)) << text;
    }
}

TEST_F(StoreTest, WorksWithoutAFolderToWriteTo) {
    std::ofstream(folder_.string()) << "a file where a folder should be";
    store_costs(file(), "a", shared_cores());
    EXPECT_FALSE(stored_costs(file(), "a", 10));
    store_costs({}, "a", shared_cores());
    EXPECT_FALSE(stored_costs({}, "a", 10));
}

TEST(CostsFile, LiesWhereTheEnvironmentSays) {
    ::setenv("HOME", "/home/u", 1);
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("TANDEM_CACHE_DIR");
    EXPECT_EQ(costs_file(), "/home/u/.cache/tandem/costs.json");
    ::setenv("XDG_CACHE_HOME", "/cache", 1);
    EXPECT_EQ(costs_file(), "/cache/tandem/costs.json");
    ::setenv("TANDEM_CACHE_DIR", "/own", 1);
    EXPECT_EQ(costs_file(), "/own/costs.json");
    ::unsetenv("TANDEM_CACHE_DIR");
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("HOME");
    EXPECT_EQ(costs_file(), "");
}

}  // namespace
}  // namespace tandem::sync
