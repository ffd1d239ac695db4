// What the product rate of a GPU is measured with, over a driver that is not there.
#include "tests/unit/common/device/cuda_rig.h"
#include "trainer/loop/flops.h"

namespace tandem::trainer {
namespace {

class ProductRateOnGpu : public Cuda {};

TEST_F(ProductRateOnGpu, IsOfAProductBesideWhichALaunchIsNothing) {
    fake.gpus[0].bytes = std::size_t{140} << 30;
    again();
    const RateProduct large = rate_product(kGpu, DType::bfloat16);
    EXPECT_EQ(large.m, 8192);
    EXPECT_EQ(large.n, 8192);
    EXPECT_EQ(large.k, 8192);
    EXPECT_EQ(large.tries, 6);
    fake.gpus[0].bytes = std::size_t{1} << 30;  // three of 4096 x 4096 are 96 MiB
    EXPECT_EQ(rate_product(kGpu, DType::bfloat16).m, 4096);
    EXPECT_EQ(rate_product(kGpu, DType::float32).m, 2048);
    fake.gpus[0].bytes = 1;
    EXPECT_EQ(rate_product(kGpu, DType::float32).m, 256);
}

}  // namespace
}  // namespace tandem::trainer
