// A machine that changes, made up: two states with costs of their own, and pushes that take what the costs say. No clock
// runs.
#include "sync/cost/adapt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace tandem::sync {
namespace {

constexpr std::size_t kMega = std::size_t{1} << 20;
constexpr std::size_t kModel = 1200 * kMega;

Stage stage(double overhead_us, double cached, double streamed) {
    return {overhead_us * 1e-3, cached, streamed};
}

// As measured on two cores of an EPYC: where they share a cache staging goes through it; apart, past it, and handing over
// costs more.
Costs costs_of(Cores cores) {
    Costs costs;
    const bool apart = cores == Cores::apart;
    costs.fill = apart ? stage(60, 14, 40) : stage(20, 36, 26);
    costs.load = apart ? stage(60, 14, 40) : stage(20, 38, 26);
    costs.both = apart ? stage(90, 7, 20) : stage(30, 18, 13);
    costs.lockstep = costs.turns = costs.both;
    costs.hash_gbps = 40;
    costs.fixed_ms = 0.1;
    costs.cache_bytes = 32 * kMega;
    costs.took_ms = 400;
    return costs;
}

Costs slower(Costs costs, double times) {
    for (Stage* one : {&costs.fill, &costs.load, &costs.both, &costs.lockstep, &costs.turns})
        *one = {one->overhead_ms * times, one->cached_gbps / times, one->streamed_gbps / times};
    return costs;
}

double push_ms(const Costs& costs, const Buckets& buckets) {
    const Prediction push = predict_gather(costs, kModel, buckets.bytes, buckets.depth, buckets.past_cache);
    return push.prepare_ms + push.total_ms;
}

double best_of_sweep(const Costs& costs) {
    double best = 1e9;
    for (int depth = 2; depth <= 4; ++depth) {
        for (std::size_t bucket = kMega; bucket <= 128 * kMega; bucket *= 2) {
            const bool fits = bucket * static_cast<std::size_t>(depth) <= costs.cache_bytes / 2;
            best = std::min(best, push_ms(costs, {bucket, depth, true}));
            if (fits) best = std::min(best, push_ms(costs, {bucket, depth, false}));
        }
    }
    return best;
}

// A machine and a trainer that pushes once a second; what is measured is what is.
struct Machine {
    explicit Machine(Cores first, const Buckets& requested = {}, const std::optional<Costs>& believed = {})
        : adapt(kModel, requested, 0), cores(first) {
        adapt.begin(first);
        adapt.know(first, believed.value_or(truth()));
        buckets = adapt.choose();
    }
    Costs truth() const { return slower(costs_of(cores), load); }
    void push(double noise = 1) {
        now_ms += 1000;
        if (adapt.look(seen.value_or(cores), now_ms)) {
            ++measured;
            adapt.know(adapt.cores(), truth(), adapt.known(adapt.cores()) ? truth().took_ms : 0);
        }
        const Buckets before = buckets;
        buckets = adapt.choose();
        changes += before.bytes != buckets.bytes || before.depth != buckets.depth ? 1 : 0;
        adapt.pushed(bias * noise * push_ms(truth(), buckets));
    }
    double over_best() const { return push_ms(truth(), buckets) / best_of_sweep(truth()); }

    Adapt adapt;
    Cores cores;
    std::optional<Cores> seen;  // where the look is wrong
    double load = 1;            // all takes so many times as long
    double bias = 1;            // … than predicted
    double now_ms = 0;
    int measured = 0, changes = 0;
    Buckets buckets;
};

TEST(Adapt, IsWithinATenthOfTheBestInEitherStateAndTheStatesDiffer) {
    Machine shared(Cores::share_cache), apart(Cores::apart);
    for (Machine* machine : {&shared, &apart}) {
        for (int i = 0; i < 10; ++i) {
            machine->push();
            EXPECT_LE(machine->over_best(), 1.1);
        }
        EXPECT_EQ(machine->changes, 0);
    }
    EXPECT_FALSE(shared.buckets.past_cache);
    EXPECT_TRUE(apart.buckets.past_cache);
    EXPECT_GT(push_ms(apart.truth(), shared.buckets), 1.5 * best_of_sweep(apart.truth()))
        << "what is best in one state is no choice in the other: else this tests nothing";
}

TEST(Adapt, FollowsAChangeWithinTwoPushes) {
    Machine machine(Cores::share_cache);
    for (const Cores next : {Cores::apart, Cores::share_cache, Cores::apart}) {
        for (int i = 0; i < 5; ++i) machine.push();
        machine.cores = next;
        for (int i = 0; i < Adapt::kSeen; ++i) machine.push();
        EXPECT_EQ(machine.adapt.cores(), next);
        EXPECT_LE(machine.over_best(), 1.1);
    }
    EXPECT_EQ(machine.measured, 1) << "each state once";
}

TEST(Adapt, DoesNotFlapWithASightThatDoes) {
    Machine machine(Cores::share_cache);
    for (int i = 0; i < 40; ++i) {
        machine.seen = i % 2 == 0 ? Cores::apart : i % 3 == 0 ? Cores::unknown : Cores::share_cache;
        machine.push();
    }
    EXPECT_EQ(machine.changes, 0);
    EXPECT_EQ(machine.measured, 0);
    EXPECT_EQ(machine.adapt.cores(), Cores::share_cache);
}

TEST(Adapt, DoesNotFlapWithNoise) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> noise(0.9, 1.12);
    Machine machine(Cores::share_cache);
    machine.bias = 1.4;  // a model that is always out by as much is no change of the machine
    for (int i = 0; i < 200; ++i) machine.push(noise(random));
    for (int i = 0; i < 20; ++i) machine.push(i % 4 == 0 ? 3 : 1);  // now and then another job
    EXPECT_EQ(machine.changes, 0);
    EXPECT_LE(machine.measured, 2) << "after 64 pushes and 128 more";
}

TEST(Adapt, MeasuresAgainWhereTheStateIsTheSameAndTheTimeIsNot) {
    Machine machine(Cores::share_cache);
    for (int i = 0; i < 100; ++i) machine.push();
    const int before = machine.measured;
    machine.load = 2;
    int pushes = 0;
    while (machine.measured == before && pushes < 100) machine.push(), ++pushes;
    EXPECT_EQ(pushes, Adapt::kStrange + 1);
    EXPECT_EQ(machine.adapt.known(Cores::share_cache)->both.cached_gbps, machine.truth().both.cached_gbps);
    EXPECT_LE(machine.over_best(), 1.1);
    for (int i = 0; i < 50; ++i) machine.push();
    EXPECT_EQ(machine.measured, before + 1);
}

// While costs were measured something else had the machine: each bucket waited for its turn, or all copies were slow and
// hid what handing over costs.
TEST(Adapt, MeasuresAgainWhatWasMeasuredOnABusyMachine) {
    for (const auto& [cores, overhead_ms, times] :
         {std::tuple{Cores::share_cache, 5.0, 1.0}, std::tuple{Cores::apart, 0.0, 3.0}}) {
        Costs wrong = slower(costs_of(cores), times);
        for (Stage* one : {&wrong.fill, &wrong.load, &wrong.both, &wrong.lockstep, &wrong.turns})
            one->overhead_ms = overhead_ms;
        Machine machine(cores, {}, wrong);
        EXPECT_GT(machine.over_best(), 1.1) << "else this tests nothing";
        for (int i = 0; i < 100; ++i) machine.push();
        EXPECT_EQ(machine.measured, 1);
        EXPECT_EQ(machine.adapt.known(cores)->both.overhead_ms, machine.truth().both.overhead_ms);
        EXPECT_LE(machine.over_best(), 1.1);
    }
}

// The second measurement is the one beside other work: the pushes bear out the first.
TEST(Adapt, KeepsWhatPredictsBetter) {
    Machine machine(Cores::share_cache);
    for (int i = 0; i < Adapt::kAgain; ++i) machine.push();
    machine.now_ms += 60'000;
    ASSERT_TRUE(machine.adapt.look(machine.cores, machine.now_ms));
    machine.adapt.know(machine.cores, slower(machine.truth(), 2), 400);
    EXPECT_EQ(machine.adapt.known(machine.cores)->both.cached_gbps, machine.truth().both.cached_gbps);
    EXPECT_FALSE(machine.adapt.look(machine.cores, machine.now_ms + 60'000))
        << "not before twice as many pushes";
}

TEST(Adapt, MeasuresForAShareOfTheTimeAtMost) {
    Machine machine(Cores::share_cache);
    for (int i = 0; i < 2000; ++i) {
        machine.load = i / 7 % 2 == 0 ? 1 : 2;
        machine.push();
    }
    EXPECT_GT(machine.measured, 10);
    EXPECT_LE(machine.measured * machine.truth().took_ms, Adapt::kShare * machine.now_ms);
}

TEST(Adapt, KeepsWhatTheUserWished) {
    Machine machine(Cores::share_cache, {4 * kMega, 3});
    for (const Cores next : {Cores::apart, Cores::share_cache}) {
        machine.cores = next;
        for (int i = 0; i < 5; ++i) machine.push();
        EXPECT_EQ(machine.buckets.bytes, 4 * kMega);
        EXPECT_EQ(machine.buckets.depth, 3);
        EXPECT_EQ(machine.buckets.past_cache, next == Cores::apart);
    }
}

TEST(Cores, AreToldApartByADistance) {
    EXPECT_EQ(cores_at(std::nullopt), Cores::unknown);
    EXPECT_EQ(cores_at(25), Cores::share_cache);
    EXPECT_EQ(cores_at(60), Cores::share_cache);
    EXPECT_EQ(cores_at(240), Cores::apart);
}

}  // namespace
}  // namespace tandem::sync
