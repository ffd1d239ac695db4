// Backend ipc between real processes that share one GPU joins the contract: 2 and 4 ranks. On the emulated
// GPU, or, with TANDEM_TEST_REAL_GPU set (tests/gpu), on a real one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/contract/comm/checks.h"
#include "tests/multiproc/comm/bodies.h"

namespace tandem::comm {
namespace {

class IpcOnOneGpu : public ::testing::TestWithParam<contract::Case> {};

TEST_P(IpcOnOneGpu, Holds) {
    LaunchOptions options = self_launch(GetParam().size, "gpu:" + GetParam().check.name);
    if (std::getenv("TANDEM_TEST_REAL_GPU") == nullptr)
        options.environment.push_back("TANDEM_EMULATED_GPUS=1");
    const LaunchResult result = RankProcesses(options).wait();
    EXPECT_EQ(result.exit_code, 0) << result.message;
    EXPECT_EQ(result.message, "");
}

INSTANTIATE_TEST_SUITE_P(Contract, IpcOnOneGpu, ::testing::ValuesIn(contract::cases({2, 4})),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tandem::comm
