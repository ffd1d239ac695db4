// Makespans, bubbles and peaks against closed forms, which were found on PyTorch's lists with another simulator.
#include "trainer/pipeline/simulate.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "common/error.h"

namespace tandem::pipeline {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Timing timing_of(const std::string& name, int ranks, int stages, int microbatches,
                 const StageTimes& times = {}) {
    return simulate(make_schedule(name, ranks, stages, microbatches),
                    std::vector<StageTimes>(static_cast<std::size_t>(ranks * stages), times));
}

double bubble_of(const std::string& name, int ranks, int stages, int microbatches,
                 const StageTimes& times = {}) {
    return timing_of(name, ranks, stages, microbatches, times).bubble;
}

constexpr StageTimes kUneven{3, 4, 2, 6};  // F, I, W, B = I + W

TEST(Simulation, AsInTheTable) {
    const auto expect = [](const std::string& name, int stages, double makespan, double bubble,
                           std::vector<int> peak) {
        const Timing timing = timing_of(name, 4, stages, 8);
        EXPECT_EQ(timing.makespan, makespan) << name;
        EXPECT_EQ(timing.bubble, bubble) << name;
        EXPECT_EQ(timing.ideal, makespan - bubble) << name;
        EXPECT_EQ(timing.peak, peak) << name;
    };
    expect("GPipe", 1, 33, 9, {8, 8, 8, 8});
    expect("1F1B", 1, 33, 9, {4, 3, 2, 1});
    expect("Interleaved1F1B", 2, 57, 9, {11, 9, 7, 5});
    expect("LoopedBFS", 2, 57, 9, {16, 16, 16, 16});
    expect("InterleavedZeroBubble", 2, 51, 3, {8, 8, 8, 8});
    expect("ZBVZeroBubble", 2, 51, 3, {8, 8, 8, 8});
    expect("DualPipeV", 2, 51, 3, {9, 9, 9, 9});
    EXPECT_EQ(timing_of("DualPipeV", 4, 2, 8, kUneven).makespan, 159);
    EXPECT_EQ(bubble_of("ZBVZeroBubble", 4, 2, 4), 6);
    EXPECT_EQ(bubble_of("ZBVZeroBubble", 8, 2, 8), 14);
    EXPECT_EQ(bubble_of("ZBVZeroBubble", 2, 2, 2), 2);
    EXPECT_EQ(bubble_of("ZBVZeroBubble", 4, 2, 8, {3, 2, 2, 4}), 11);
}

// Bubbles that do not depend on M, where M >= P; and those of fewer micro-batches.
TEST(Simulation, Bubbles) {
    for (int p = 1; p <= 8; ++p) {
        for (const int m : {p, 2 * p, 3 * p, 2 * p - 1}) {
            for (const StageTimes& t : {StageTimes{}, kUneven, StageTimes{2, 1, 5, 6}}) {
                const double full = (p - 1) * (t.forward + t.backward);
                EXPECT_EQ(bubble_of("GPipe", p, 1, m, t), full);
                EXPECT_EQ(bubble_of("1F1B", p, 1, m, t), full);
                EXPECT_EQ(bubble_of("LoopedBFS", p, 3, m, t), full);
                if (m % std::max(1, m / p) == 0) {
                    EXPECT_EQ(bubble_of("Interleaved1F1B", p, 2, m, t), full);
                }
            }
            for (const StageTimes& t : {StageTimes{}, kUneven})
                if (m % p == 0) {
                    EXPECT_EQ(bubble_of("InterleavedZeroBubble", p, 2, m, t),
                              (p - 1) * (t.forward + t.input - t.weight));
                }
            if (m >= 2 * p - 1) {
                EXPECT_EQ(bubble_of("ZBVZeroBubble", p, 2, m), p - 1);
            }
            if (m >= 2 * p - 1) {
                EXPECT_EQ(bubble_of("ZBVZeroBubble", p, 2, m, kUneven), 4 * (p - 1));
            }
            if (m >= 2 * p) {
                EXPECT_EQ(bubble_of("DualPipeV", p, 2, m), p - 1);
            }
        }
        for (int m = 1; m < p; ++m) {
            EXPECT_EQ(bubble_of("GPipe", p, 1, m), (p - 1) * 3);
            for (const char* name : {"LoopedBFS", "Interleaved1F1B"})
                EXPECT_EQ(bubble_of(name, p, 3, m), (p - 1) * 3 + (p - m) * 2 * 3)
                    << name << " P " << p << " M " << m;
        }
    }
    const double uneven[] = {0, 5, 10, 15, 21, 27, 33, 39};
    for (int p = 1; p <= 8; ++p) EXPECT_EQ(bubble_of("DualPipeV", p, 2, 3 * p, kUneven), uneven[p - 1]) << p;
}

TEST(Simulation, Peaks) {
    for (int p = 1; p <= 8; ++p) {
        for (int v = 1; v <= 3; ++v) {
            for (int m = 1; m <= 20; ++m) {
                EXPECT_THAT(timing_of("GPipe", p, 1, m).peak, Each(m));
                EXPECT_THAT(timing_of("LoopedBFS", p, v, m).peak, Each(m * v));
                const bool rounds = m % std::max(1, m / p) == 0;
                const int round = m / std::max(1, m / p);
                for (int r = 0; r < p; ++r) {
                    const auto peak = [&](const char* name, int stages) {
                        return timing_of(name, p, stages, m).peak[static_cast<std::size_t>(r)];
                    };
                    const auto warmup = [&](int factor) {
                        return std::min((v - 1) * round + factor * (p - 1 - r), m * v);
                    };
                    if (m >= p) {
                        EXPECT_EQ(peak("1F1B", 1), std::min(m, p - r));
                    }
                    if (rounds) {
                        EXPECT_EQ(peak("Interleaved1F1B", v), std::min(warmup(2) + 1, m * v));
                    }
                    if (rounds) {
                        EXPECT_EQ(peak("InterleavedZeroBubble", v), std::min(warmup(1) + 1 + r, m * v));
                    }
                    if (m >= 2 * p - 1) {
                        EXPECT_EQ(peak("ZBVZeroBubble", 2), 2 * p);
                    }
                    if (m >= 2 * p) {
                        EXPECT_EQ(peak("DualPipeV", 2), 2 * p + 1);
                    }
                }
            }
        }
    }
}

// A slow last stage holds up all others; the ideal is what its rank has to do.
TEST(Simulation, TimesOfEachStage) {
    const Schedule schedule = make_schedule("GPipe", 2, 1, 2);
    const auto times = read_times(R"([{"F": 1, "B": 2}, {"F": 3, "I": 2, "W": 2.5}])", "t.json", schedule);
    const Timing timing = simulate(schedule, times);
    EXPECT_EQ(timing.makespan, 1 + 2 * 3 + 2 * 4.5 + 2);
    EXPECT_EQ(timing.ideal, 15);
    EXPECT_EQ(timing.bubble, 3);
    ASSERT_EQ(timing.ranks[1].size(), 4u);
    EXPECT_EQ(timing.ranks[1][1].start, 4);
    EXPECT_EQ(timing.ranks[1][2].end, 11.5);
    EXPECT_EQ(to_string(timing.ranks[1][2].action), "1B0");
}

// An overlap's forward runs when its input is there, its backward after it; both give on what they have at once.
TEST(Simulation, AnOverlapIsItsForwardThenItsBackward) {
    const Timing timing = timing_of("DualPipeV", 1, 2, 2);
    std::vector<std::string> ran;
    for (const Interval& interval : timing.ranks[0]) ran.push_back(to_string(interval.action));
    EXPECT_THAT(ran, ElementsAre("0F0", "1F0", "0F1", "1B0", "1F1", "0B0", "1B1", "0I1", "0W1"));
}

TEST(Simulation, RefusesListsThatWaitForEachOther) {
    Schedule schedule = make_schedule("GPipe", 2, 1, 1);
    std::swap(schedule.ranks[0][0], schedule.ranks[0][1]);
    EXPECT_THAT([&] { simulate(schedule); },
                ThrowsMessage<BadInput>(HasSubstr("rank 0, action 0 (0B0): it waits forever")));
}

TEST(StageTimes, RefusalsNameStageAndKey) {
    const Schedule zero_bubble = make_schedule("InterleavedZeroBubble", 2, 1, 2);
    const auto refused = [&](const std::string& text, const std::string& part) {
        EXPECT_THAT([&] { read_times(text, "t.json", zero_bubble); },
                    ThrowsMessage<ConfigError>(HasSubstr(part)))
            << text;
    };
    refused(R"({"F": 1, "B": 2})", "t.json: I: is missing, and this schedule needs it");
    refused(R"([{"F": 1, "I": 1, "W": 1}, {"F": 1, "I": 1}])", "t.json: stage 1.W: is missing");
    refused(R"({"I": 1, "W": 1})", "t.json: F: is missing");
    refused(R"([{"F": 1, "I": 1, "W": 1}])", "t.json: has times of 1 stages, where the schedule has 2");
    refused(R"({"F": -1, "I": 1, "W": 1})", "t.json: F: must be a number from 0 to 1000000000");
    refused(R"({"F": "1", "I": 1, "W": 1})", "t.json: F: must be a number");
    refused(R"({"F": 1e300, "I": 1, "W": 1})", "t.json: F: must be a number");
    refused(R"({"F": 1, "I": 1, "W": 1, "X": 1})", "t.json: X: is unknown; known: F, I, W, B");
    refused("[1, 2]", R"(t.json: stage 0: must be an object, as in {"F": 3, "I": 4, "W": 2})");
    refused("7", "must be an object");
    refused("{", "t.json");
    EXPECT_EQ(read_times(R"({"F": 1, "I": 0, "W": 3})", "t.json", zero_bubble)[1].backward, 3);
    EXPECT_EQ(read_times(R"({"F": 1, "I": 1, "W": 3, "B": 3.5})", "t.json", zero_bubble)[0].backward, 3.5);
    const Schedule whole = make_schedule("GPipe", 2, 1, 2);
    EXPECT_THAT([&] { read_times(R"({"F": 1, "I": 1})", "t.json", whole); },
                ThrowsMessage<ConfigError>(HasSubstr("t.json: B: is missing")));
}

// What was measured is put together as what was simulated is, and its mean times give the same again.
TEST(Simulation, FromIntervalsAndBack) {
    for (const char* name : {"1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "GPipe"}) {
        const int stages_per_rank = usual_stages_per_rank(name);
        const Schedule compute = make_schedule(name, 3, stages_per_rank, 6);
        std::vector<StageTimes> times;
        for (int stage = 0; stage < compute.stages(); ++stage)
            times.push_back({1.0 + stage, 2.0, 3.0 + stage, 5.0 + stage});
        const Timing timing = simulate(compute, times);
        const Timing again = timing_of(timing.ranks);
        EXPECT_EQ(again.makespan, timing.makespan);
        EXPECT_EQ(again.bubble, timing.bubble);
        EXPECT_EQ(again.peak, timing.peak);
        const auto means = mean_times(timing, compute.stages());
        EXPECT_NEAR(simulate(compute, means).makespan, timing.makespan, 1e-9) << name;
        EXPECT_EQ(means[1].forward, 2);
    }
    const std::vector<std::vector<Interval>> one_rank{
        {{{ActionKind::forward, 0, 0}, 0, 2}, {{ActionKind::full_backward, 0, 0}, 3, 9}}};
    const Timing once = timing_of(one_rank);
    EXPECT_EQ(once.makespan, 9);
    EXPECT_EQ(once.ideal, 8);
    EXPECT_EQ(once.bubble, 1);
    const auto means = mean_times(once, 2);
    EXPECT_EQ(means[0].input, 3);
    EXPECT_EQ(means[1].forward, 0);
}

}  // namespace
}  // namespace tandem::pipeline
