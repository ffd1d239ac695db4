// Backend ipc for memory of a GPU, between threads of one process on the emulated GPU, joins the contract.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/comm/launch.h"
#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/on_gpu.h"

namespace tandem::comm {
namespace {

[[maybe_unused]] const int kEmulate = ::setenv("TANDEM_EMULATED_GPUS", "1", 1);
const Device kGpu{DeviceType::cuda, 0};

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kSizes = {3};
#else
const std::vector<int> kSizes = {1, 2, 4};
#endif

class IpcOnEmulatedGpu : public ::testing::TestWithParam<contract::Case> {};

TEST_P(IpcOnEmulatedGpu, Holds) {
    EXPECT_NO_THROW(run_threads(GetParam().size, [](const std::shared_ptr<Communicator>& world) {
        const Stream compute = Stream::make_compute(kGpu);
        GetParam().check.run(contract::on_gpu(world, kGpu));
    }));
}

INSTANTIATE_TEST_SUITE_P(Contract, IpcOnEmulatedGpu, ::testing::ValuesIn(contract::cases(kSizes)),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tandem::comm
