// Which communicator a GPU gets, over a driver that is not there and an NCCL that refuses
// (nccl_stand_in.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/comm/launch.h"
#include "common/identity/gpu_identity.h"
#include "tests/support/error_of.h"
#include "tests/unit/common/device/cuda_rig.h"

namespace tandem::comm {
namespace {

using test::error_of;
using ::testing::HasSubstr;

class OnDevice : public Cuda {
  protected:
    OnDevice() { ::setenv("TANDEM_NCCL", NCCL_STAND_IN, 1); }
    ~OnDevice() override {
        for (const char* name : {"TANDEM_NCCL", "TANDEM_COMM", "CUDA_VISIBLE_DEVICES"}) ::unsetenv(name);
    }
};

TEST_F(OnDevice, ARankAloneGoesThroughNcclOnlyWhereThatIsAskedFor) {
    run_threads(1, [](const std::shared_ptr<Communicator>& world) {
        EXPECT_EQ(for_device(world, kGpu), world);
        ::setenv("TANDEM_COMM", "nccl", 1);
        EXPECT_THAT(error_of([&] { for_device(world, kGpu); }), HasSubstr("the stand-in was asked"));
    });
}

// A rank whose process sees every GPU, one that was given it by number, and one by its UUID.
TEST_F(OnDevice, AGpuIsItselfHoweverAProcessIsGivenIt) {
    const auto identity = [&](const char* visible, const std::vector<unsigned char>& uuids, int index) {
        fake.gpus.clear();
        for (const unsigned char uuid : uuids) fake.gpus.emplace_back().uuid = uuid;
        visible == nullptr ? ::unsetenv("CUDA_VISIBLE_DEVICES")
                           : ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        again();
        return gpu_identity({DeviceType::cuda, index});
    };
    const char* second = "GPU-cd000000-0000-0000-0000-000000000000";
    EXPECT_EQ(identity(nullptr, {0xab, 0xcd}, 1), second);
    EXPECT_EQ(identity("1", {0xcd}, 0), second);
    EXPECT_EQ(identity(second, {0xcd}, 0), second);
    EXPECT_EQ(identity("1,0", {0xcd, 0xab}, 0), second);
    EXPECT_NE(identity("0", {0xab}, 0), second);
}

}  // namespace
}  // namespace tandem::comm
