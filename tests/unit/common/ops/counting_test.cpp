// Ops on a thread that only counts (common/device/counting.h): arguments are checked, and nothing is computed.
#include <gtest/gtest.h>

#include "common/device/counting.h"
#include "common/error.h"
#include "common/ops/adamw.h"
#include "common/ops/elementwise.h"
#include "common/ops/finite.h"
#include "common/ops/matmul.h"

namespace tandem::ops {
namespace {

TEST(CountingOps, OnBothDevicesAreCheckedAndDoNothing) {
    run_counting([] {
        for (const Device device : {Device{}, Device{DeviceType::cuda, 0}}) {
            Stream stream = Stream::make_compute(device);
            // Such products would take hours, and these tensors more than a host has.
            const std::int64_t n = 1 << 20;
            const Tensor x = Tensor::empty(stream, {n, n}, DType::bfloat16, "x");
            const Tensor y = Tensor::empty(stream, {n, n}, DType::bfloat16, "y");
            linear(stream, x, x, y);
            add(stream, y, x);
            const Tensor wrong = Tensor::empty(stream, {n, 3}, DType::bfloat16, "y");
            EXPECT_THROW(linear(stream, x, x, wrong), InvalidArgument);
            EXPECT_THROW(add(stream, y, wrong), InvalidArgument);
        }
        Stream cpu = Stream::make_compute({});
        const Tensor on_gpu = Tensor::empty({4}, DType::float32, "x", device_pool({DeviceType::cuda, 0}));
        EXPECT_THROW(scale(cpu, on_gpu, 2), InvalidArgument);
    });
}

TEST(CountingOps, ResultsAreZero) {
    run_counting([] {
        Stream stream = Stream::make_compute({DeviceType::cuda, 0});
        const Tensor x = Tensor::empty(stream, {std::int64_t{1} << 36}, DType::float32, "x");
        EXPECT_EQ(sum_of_squares(stream, x), 0);
        EXPECT_EQ(find_non_finite(stream, x).count, 0);
    });
}

}  // namespace
}  // namespace tandem::ops
