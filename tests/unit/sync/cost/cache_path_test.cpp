#include "sync/cost/cache_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tandem::sync {
namespace {

using Ms = std::array<double, 2>;  // through the cache, past it

// The ways of so many pushes on a machine where they take so long.
std::vector<bool> pushes(CachePath& path, int count, const Ms& ms, Cores cores = Cores::unknown) {
    std::vector<bool> past;
    for (int i = 0; i < count; ++i) {
        past.push_back(path.past(cores));
        path.took(cores, ms[path.past(cores) ? 1 : 0]);
    }
    return past;
}

TEST(CachePath, BothAreTriedOnceThenTheFasterStays) {
    CachePath shared(false, true);
    EXPECT_EQ(pushes(shared, 5, {25, 27}), (std::vector<bool>{false, true, false, false, false}));
    CachePath apart(false, true);
    EXPECT_EQ(pushes(apart, 5, {55, 27}), (std::vector<bool>{false, true, true, true, true}));
    CachePath begun_past(true, true);
    EXPECT_EQ(pushes(begun_past, 4, {25, 27}), (std::vector<bool>{true, false, false, false}));
}

TEST(CachePath, CoresThatPartAreNoticedByTheNextPush) {
    CachePath path(false, true);
    pushes(path, 4, {25, 27});
    EXPECT_EQ(pushes(path, 3, {55, 28}), (std::vector<bool>{false, true, true}));
}

// Apart, the machine copies faster: past the cache takes less than through it took before, or less than past it did.
TEST(CachePath, EachStateRemembersItsOwn) {
    constexpr Ms kShared = {78, 90}, kApart = {79, 56};
    CachePath path(false, true);
    pushes(path, 4, kShared, Cores::share_cache);
    EXPECT_EQ(pushes(path, 4, kApart, Cores::apart), (std::vector<bool>{false, true, true, true}));
    EXPECT_EQ(pushes(path, 2, kShared, Cores::share_cache), (std::vector<bool>{false, false}));
    EXPECT_EQ(pushes(path, 2, kApart, Cores::apart), (std::vector<bool>{true, true}));
    CachePath told(false, true);
    told.begin(Cores::apart, true);
    EXPECT_EQ(pushes(told, 3, kApart, Cores::apart), (std::vector<bool>{true, false, true}));
    told.begin(Cores::apart, false);
    EXPECT_TRUE(told.past(Cores::apart)) << "what was tried counts for more";
}

// A push beside other work took long, and the slower way was taken for the faster one.
TEST(CachePath, WhatWasSeenOnABusyMachineIsLookedAtAgain) {
    CachePath path(false, true);
    pushes(path, 4, {25, 50});
    pushes(path, 1, {300, 50});
    EXPECT_TRUE(path.past(Cores::unknown));
    pushes(path, CachePath::kAgain, {25, 50});
    const std::vector<bool> past = pushes(path, 200, {25, 50});
    EXPECT_FALSE(past[1]);
    EXPECT_LE(std::count(past.begin(), past.end(), true), 6) << "seldom, where the other way is slower";
}

// The first two pushes in a state, and each later one that looks at the other way again.
TEST(CachePath, IsSettledButForPushesThatSeeWhatAWayTakes) {
    CachePath path(false, true);
    constexpr Ms kMs = {25, 50};
    for (const bool settled : {false, false, true, true}) {
        EXPECT_EQ(path.settled(Cores::apart), settled);
        pushes(path, 1, kMs, Cores::apart);
    }
    EXPECT_FALSE(path.settled(Cores::share_cache)) << "nothing was tried there";
    for (int push = 0; push < 100; ++push) {
        EXPECT_EQ(path.settled(Cores::apart), !path.past(Cores::apart)) << push;
        pushes(path, 1, kMs, Cores::apart);
    }
    pushes(path, CachePath::kAtMost + 1, {25, 20}, Cores::apart);
    EXPECT_TRUE(path.past(Cores::apart)) << "the other way has become the faster one";
    EXPECT_TRUE(path.settled(Cores::apart));
}

TEST(CachePath, WhereOneWayWillDoItStays) {
    CachePath path(true, false);
    EXPECT_TRUE(path.settled(Cores::unknown));
    EXPECT_EQ(pushes(path, 3, {1, 99}), (std::vector<bool>{true, true, true}));
}

}  // namespace
}  // namespace tandem::sync
