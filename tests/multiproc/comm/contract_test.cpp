// Backend ipc between real processes joins the contract: 2 and 3 ranks, and 6, which are more than the cores.
#include <gtest/gtest.h>

#include "tests/contract/comm/checks.h"
#include "tests/multiproc/comm/bodies.h"

namespace tandem::comm {
namespace {

class IpcProcesses : public ::testing::TestWithParam<contract::Case> {};

TEST_P(IpcProcesses, Holds) {
    const LaunchResult result = RankProcesses(self_launch(GetParam().size, GetParam().check.name)).wait();
    EXPECT_EQ(result.exit_code, 0) << result.message;
    EXPECT_EQ(result.message, "");
}

INSTANTIATE_TEST_SUITE_P(Contract, IpcProcesses, ::testing::ValuesIn(contract::cases({2, 3, 6})),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tandem::comm
