// Which memory the nccl backend registers with NCCL, and when it ends that.
#include <gmock/gmock.h>

#include "common/device/memory.h"
#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/unit/common/comm/nccl_rig.h"

namespace tandem::comm::nccl {
namespace {

using test::error_of;
using ::testing::HasSubstr;

using NcclRegistration = Nccl;

// While it lives, NCCL registers memory.
struct Registering {
    Registering() { ::setenv("TANDEM_NCCL_REGISTER", "1", 1); }
    ~Registering() { ::unsetenv("TANDEM_NCCL_REGISTER"); }
};

// One rank's call may be with memory of the pool and another's not, and NCCL wants all or none registered.
TEST_F(NcclRegistration, NothingIsRegisteredUnasked) {
    const auto sum = [] {
        run(2, [](const World& world) {
            Stream stream = Stream::make(kGpu, "work");
            MemoryPool& pool = world->rank() == 0 ? world->memory(kGpu) : device_pool(kGpu);
            const Buffer memory(4096, "test", pool);
            world->all_reduce(memory.span(), DType::float32, ReduceOp::sum, stream);
            stream.synchronize();
        });
    };
    sum();
    EXPECT_EQ(fake::count("register 67108864"), 0);
    ::setenv("TANDEM_NCCL_REGISTER", "yes", 1);
    EXPECT_THAT(error_of(sum), HasSubstr("'yes' is not 0 or 1"));
    ::unsetenv("TANDEM_NCCL_REGISTER");
}

TEST_F(NcclRegistration, MemoryOfThePoolIsRegisteredOnce) {
    const Registering asked;
    run(1, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        const Buffer ours(4096, "test", world->memory(kGpu));
        const Buffer others(4096, "test", device_pool(kGpu));
        for (int i = 0; i < 3; ++i) {
            world->all_reduce(ours.span(), DType::float32, ReduceOp::sum, stream);
            world->all_reduce(others.span(), DType::float32, ReduceOp::sum, stream);
        }
        stream.synchronize();
    });
    EXPECT_EQ(fake::count("register 67108864"), 1);
    EXPECT_EQ(fake::count("deregister"), 1);
}

TEST_F(NcclRegistration, ARefusedRegistrationIsNoFailure) {
    fake::Behaviour behaviour;
    behaviour.registration = Result::unhandled_cuda_error;
    fake::reset(behaviour);
    const Registering asked;
    run(1, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        const Buffer ours(4096, "test", world->memory(kGpu));
        for (int i = 0; i < 3; ++i) world->all_reduce(ours.span(), DType::float32, ReduceOp::sum, stream);
        stream.synchronize();
    });
    EXPECT_EQ(fake::count("register 67108864"), 1);
    EXPECT_EQ(fake::count("deregister"), 0);
}

TEST_F(NcclRegistration, TrimmedMemoryIsRegisteredNoMore) {
    const Registering asked;
    run(1, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        for (int i = 1; i <= 2; ++i) {
            {
                const Buffer memory(4096, "test", world->memory(kGpu));
                world->all_reduce(memory.span(), DType::float32, ReduceOp::sum, stream);
                stream.synchronize();
            }
            EXPECT_EQ(world->trim_memory(kGpu), std::size_t{64} << 20);
            EXPECT_EQ(fake::count("register 67108864"), i);
            EXPECT_EQ(fake::count("deregister"), i);
        }
    });
}

}  // namespace
}  // namespace tandem::comm::nccl
