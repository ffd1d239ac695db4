// The way of prefetching: the fastest of those measured, or the one that a variable names.
#include "common/ops/cpu/copy_prefetch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "common/error.h"

namespace tandem::ops::detail {
namespace {

TEST(CopyPrefetch, TheShortestLookCounts) {
    std::map<Prefetch, int> looks;
    const auto machine = [&](double non_temporal, double far, double near) {
        looks.clear();
        return [&looks, non_temporal, far, near](Prefetch way) {
            const double seconds = way == Prefetch::non_temporal ? non_temporal
                                   : way == Prefetch::far        ? far
                                                                 : near;
            // Disturbed at all looks but one.
            return ++looks[way] == 4 ? seconds : 10 * seconds;
        };
    };
    EXPECT_EQ(fastest_prefetch(machine(2.3, 1.0, 1.2)), Prefetch::far);
    EXPECT_EQ(fastest_prefetch(machine(1.1, 1.0, 0.9)), Prefetch::near);
    EXPECT_EQ(fastest_prefetch(machine(1.0, 1.3, 1.2)), Prefetch::non_temporal);
    EXPECT_EQ(fastest_prefetch(machine(1.0, 0.98, 0.99)), Prefetch::non_temporal) << "a tie";
    EXPECT_EQ(looks[Prefetch::near], looks[Prefetch::non_temporal]);
}

TEST(CopyPrefetch, AVariableForcesIt) {
    ASSERT_EQ(::setenv("TANDEM_PREFETCH", "near", 1), 0);
    EXPECT_EQ(choose_prefetch(kCopyBaseline, RowsLie::apart), Prefetch::near);
    ::setenv("TANDEM_PREFETCH", "far", 1);
    EXPECT_EQ(choose_prefetch(kCopyBaseline, RowsLie::apart), Prefetch::far);
    ::setenv("TANDEM_PREFETCH", "nta", 1);
    try {
        choose_prefetch(kCopyBaseline, RowsLie::apart);
        FAIL() << "an unknown way";
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("TANDEM_PREFETCH=nta"), std::string::npos) << error.what();
    }
    ::unsetenv("TANDEM_PREFETCH");
}

}  // namespace
}  // namespace tandem::ops::detail
