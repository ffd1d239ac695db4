// The measurement of the product rate beside a computation: what it multiplies where, and that it leaves the
// order of memory to the stream that computes.
#include <gtest/gtest.h>

#include <cmath>
#include <future>

#include "common/comm/launch.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"
#include "trainer/loop/flops.h"

namespace tandem::trainer {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

TEST(ProductRate, IsSmallWhereTheHostComputes) {
    for (const Device device : {Device{}, kGpu}) EXPECT_EQ(rate_product(device, DType::bfloat16).m, 256);
}

// As in a run over NCCL: the first stream of the process is NCCL's, then comes the policy's, then the
// measurement's own, which ends. What the policy frees afterwards may not go back before its stream has read
// it.
TEST(ProductRate, LeavesMemoryInTheOrderOfThePolicysStream) {
    comm::run_threads(2, [](const std::shared_ptr<comm::Communicator>& world) {
        Stream nccl = Stream::make(kGpu, "nccl");
        Stream compute = Stream::make_compute(kGpu);
        EXPECT_GT(measure_product_rate(*world, kGpu, DType::bfloat16), 1e8);
        std::promise<void> gate;
        float seen = NAN;
        {
            const Tensor there = Tensor::zeros(compute, {1024}, DType::float32, "product_rate_test");
            emulated::launch(compute, [alias = host_alias(there), open = gate.get_future().share(), &seen] {
                open.wait();
                seen = alias.values<float>()[5];
            });
        }
        nccl.synchronize();
        world->barrier();  // nor may it be another rank's stream
        gate.set_value();
        compute.synchronize();
        EXPECT_EQ(seen, 0.0F);
        world->barrier();
    });
}

}  // namespace
}  // namespace tandem::trainer
