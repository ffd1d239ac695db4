// Backend ipc between threads of one process, 1 to 4 ranks, joins the contract.
#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "tests/contract/comm/checks.h"

namespace tandem::comm {
namespace {

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kSizes = {1, 3};  // many times slower there
#else
const std::vector<int> kSizes = {1, 2, 3, 4};
#endif

class IpcThreads : public ::testing::TestWithParam<contract::Case> {};

TEST_P(IpcThreads, Holds) {
    EXPECT_NO_THROW(run_threads(GetParam().size, GetParam().check.run));
}

INSTANTIATE_TEST_SUITE_P(Contract, IpcThreads, ::testing::ValuesIn(contract::cases(kSizes)),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tandem::comm
