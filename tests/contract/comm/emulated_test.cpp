// Backend ipc for memory of a GPU, between threads of one process on the emulated GPU, joins the contract.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/on_gpu.h"
#include "tests/support/free_bytes.h"

namespace tandem::comm {
namespace {

const Device kGpu{DeviceType::cuda, 0};

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kEmulatedSizes = {3};
#else
const std::vector<int> kEmulatedSizes = {1, 2, 4};
#endif

class IpcOnEmulatedGpu : public ::testing::TestWithParam<contract::Case> {};

TEST_P(IpcOnEmulatedGpu, Holds) {
    EXPECT_NO_THROW(run_threads(GetParam().size, [](const std::shared_ptr<Communicator>& world) {
        const Stream compute = Stream::make_compute(kGpu);
        GetParam().check.run(contract::on_gpu(world, kGpu));
    }));
}

INSTANTIATE_TEST_SUITE_P(Contract, IpcOnEmulatedGpu, ::testing::ValuesIn(contract::cases(kEmulatedSizes)),
                         [](const auto& info) { return info.param.name(); });

TEST(IpcOnEmulatedGpuMemory, WhatNobodyHoldsGoesBackToTheGpu) {
    constexpr std::size_t kBytes = std::size_t{80} << 20;
    const std::uint64_t at_first = tests::free_bytes(kGpu);
    run_threads(2, [&](const std::shared_ptr<Communicator>& world) {
        Stream compute = Stream::make_compute(kGpu);
        Stream stream = Stream::make(kGpu, "work");
        {
            const Buffer kept(4096, "test", world->memory(kGpu));
            const Buffer large(kBytes, "test", world->memory(kGpu));
            const Buffer staged(2 * kBytes, "test", device_pool(kGpu));
            stream.wait(compute.record());
            const GatherItem item{staged.span().subspan(0, kBytes), staged.span()};
            world->all_gather(std::span(&item, 1), stream).wait(Deadline::after_ms(60'000));
            compute.wait(stream.record());
        }
        world->barrier();
        if (world->rank() == 0) {  // two arenas a rank
            EXPECT_LE(tests::free_bytes(kGpu), at_first - 2 * (kBytes + (std::size_t{64} << 20)));
        }
        world->barrier();
        const Buffer kept(4096, "test", world->memory(kGpu));
        EXPECT_GE(world->trim_memory(kGpu), kBytes);
        world->barrier();
        if (world->rank() == 0) {  // the arena of `kept` stays
            EXPECT_LE(at_first - tests::free_bytes(kGpu), 2 * (std::size_t{64} << 20));
        }
        world->barrier();
    });
    EXPECT_EQ(tests::free_bytes(kGpu), at_first);
}

}  // namespace
}  // namespace tandem::comm
