// The prediction against the counted peak of real passes on one rank: every tag, and so the sum. Processes:
// tests/multiproc/memory.
#include <gtest/gtest.h>

#include "common/comm/launch.h"

#include "tests/unit/trainer/memory/memory_cases.h"

namespace tandem::trainer::testing {
namespace {

class MemoryPrediction : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(MemoryPrediction, IsWhatIsCounted) {
    EXPECT_EQ(check_memory(comm::solo(), GetParam()), "") << describe(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Family, MemoryPrediction, ::testing::ValuesIn(one_rank_cases()));

}  // namespace
}  // namespace tandem::trainer::testing
