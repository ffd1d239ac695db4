// The counter-based random numbers behind sampling.
#include "engine_adapter/embedded/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::engine {
namespace {

TEST(Random, PhiloxKnownAnswers) {  // from the Random123 distribution's kat_vectors
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const std::uint32_t all = 0xffffffff;
    EXPECT_EQ(philox4x32({all, all, all, all}, {all, all}),
              (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
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
