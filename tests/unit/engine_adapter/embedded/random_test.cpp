// The counter-based random numbers behind sampling.
#include "engine_adapter/embedded/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::engine {
namespace {

// Samples of a seed stay what they were: which words of the counter are position, stream and seed.
TEST(Random, DrawsWhatItAlwaysDrew) {
    EXPECT_EQ(uniform(0, 0, 0), 0x1.989fa35785a7p-2);
    EXPECT_EQ(uniform(7, 3, 41), 0x1.1976ea6d05af8p-3);
    EXPECT_EQ(uniform(0xfedcba9876543210, 0x123456789abcdef, 0x1000000001), 0x1.4c7e55ea209b6p-1);
}

TEST(Random, EverySeedStreamAndPositionIsItsOwn) {
    std::set<double> seen;
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        for (std::uint64_t stream = 0; stream < 10; ++stream) {
            for (std::uint64_t position = 0; position < 100; ++position) {
                const double u = uniform(seed, stream, position);
                EXPECT_GE(u, 0.0);
                EXPECT_LT(u, 1.0);
                EXPECT_EQ(u, uniform(seed, stream, position));
                seen.insert(u);
                sum += u;
            }
        }
    }
    EXPECT_EQ(seen.size(), 10000u);
    EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace tandem::engine
