#include "sync/gather/cache_path.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tandem::sync {
namespace {

using Ms = std::array<double, 2>;  // through the cache, past it

// The ways of so many pushes on a machine where they take so long.
std::vector<bool> pushes(CachePath& path, int count, const Ms& ms) {
    std::vector<bool> past;
    for (int i = 0; i < count; ++i) {
        past.push_back(path.past());
        path.took(ms[path.past() ? 1 : 0]);
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

TEST(CachePath, WhereOneWayWillDoItStays) {
    CachePath path(true, false);
    EXPECT_EQ(pushes(path, 3, {1, 99}), (std::vector<bool>{true, true, true}));
}

}  // namespace
}  // namespace tandem::sync
