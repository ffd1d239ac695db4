// What holds on the CPU and on an emulated GPU alike: streams, copies, pools and tensors of a Device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/device/tier.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/support/soon.h"

namespace tandem {
namespace {

const Device kGpu{DeviceType::cuda, 0};

class OnDevice : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::Values(Device{}, kGpu, Device{DeviceType::cuda, 1}),
                         [](const auto& info) {
                             return info.param.type == DeviceType::cpu
                                        ? "cpu"
                                        : "emulated" + std::to_string(info.param.index);
                         });

std::vector<float> count_to(std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), 0.0F);
    return values;
}

TEST_P(OnDevice, TensorsGoThereAndBack) {
    for (const bool compute : {true, false}) {
        Stream stream = compute ? Stream::make_compute(GetParam()) : Stream::make(GetParam(), "test");
        EXPECT_EQ(stream.device(), GetParam());
        const auto values = count_to(1000);
        const Tensor host = Tensor::from<float>(values, {10, 100});
        const Tensor there = host.to(stream, GetParam(), "on_devices");
        EXPECT_EQ(there.device(), GetParam());
        EXPECT_EQ(there.rows(3, 2).reshape({200}).device(), GetParam());
        const Tensor second = Tensor::empty(stream, {10, 100}, DType::float32, "on_devices");
        copy(stream, there, second);
        EXPECT_EQ(second.to_host(stream).to_vector<float>(), values);
        EXPECT_EQ(second.rows(7, 1).to_host(stream).to_vector<float>(),
                  std::vector<float>(values.begin() + 700, values.begin() + 800));
        const Tensor zeros = Tensor::zeros(stream, {5}, DType::float32, "on_devices");
        EXPECT_EQ(zeros.to_host(stream).to_vector<float>(), std::vector<float>(5, 0.0F));
        EXPECT_GE(memory_stats("on_devices").live_bytes, 8020U);
    }
    EXPECT_EQ(memory_stats("on_devices").live_bytes, 0U);
}

TEST_P(OnDevice, EventsOrderStreamsOfTwoKinds) {
    Stream worker = Stream::make_worker("host side");
    Stream stream = Stream::make(GetParam(), "device side");
    Stream other = Stream::make(GetParam(), "second");
    std::vector<float> source(64, 1.0F);
    std::vector<float> sink(64, 0.0F);
    const Tensor there = Tensor::empty(other, {64}, DType::float32, "on_devices");
    const auto bytes = [](std::vector<float>& v) {
        return Span{reinterpret_cast<std::byte*>(v.data()), v.size() * 4};
    };
    for (int round = 1; round <= 50; ++round) {
        worker.enqueue([&source, round] { source.assign(64, static_cast<float>(round)); });
        stream.wait(worker.record());
        copy(stream, bytes(source), there.span());
        other.wait(stream.record());
        copy(other, there.span(), bytes(sink));
        worker.wait(other.record());
        worker.enqueue([&sink, round] {
            if (sink != std::vector<float>(64, static_cast<float>(round))) throw Error("read too early");
        });
    }
    worker.synchronize();
    other.record().wait(test::soon());
}

TEST_P(OnDevice, HostCallsComeInOrder) {
    Stream stream = Stream::make(GetParam(), "calls");
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) stream.call_host([&order, i] { order.push_back(i); });
    stream.synchronize();
    ASSERT_EQ(order.size(), 20U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(OnDevice, RangePoolsKnowTheirDevice) {
    const Buffer arena(1 << 20, "on_devices", device_pool(GetParam()));
    EXPECT_EQ(arena.device(), GetParam());
    const auto pool = make_range_pool(arena.span(), "test", GetParam());
    EXPECT_EQ(Tensor::empty({8}, DType::float32, "on_devices", *pool).device(), GetParam());
    EXPECT_EQ(Tensor::borrow(arena.span(), {8}, DType::float32, GetParam()).device(), GetParam());
}

TEST_P(OnDevice, APinnedTierKeepsWhatADeviceHolds) {
    const auto tier = make_pinned_tier(1000, "pinned_test");
    EXPECT_EQ(tier->bytes(), 1000U);
    EXPECT_EQ(memory_stats("pinned_test").live_bytes, 1000U);
    Stream stream = Stream::make(GetParam(), "offload");
    const auto values = count_to(100);
    const Tensor source = Tensor::from<float>(values, {100});  // lives until the stream is past its copy
    const Tensor there = source.to(stream, GetParam(), "on_devices");
    tier->write(stream, 500, there.span());
    fill_zero(stream, there.span());
    tier->read(stream, 500, there.span());
    EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
    tier->read(stream, 0, there.span());  // never written
    EXPECT_EQ(there.to_host(stream).to_vector<float>(), std::vector<float>(100, 0.0F));
    EXPECT_THROW(tier->read(stream, 601, there.span()), InvalidArgument);
}

TEST(Tier, AFileRefusesAGpuStream) {
    const auto tier = make_file_tier("/tmp", 4096);
    Stream stream = Stream::make(kGpu, "offload");
    const Tensor there = Tensor::empty(stream, {8}, DType::float32, "on_devices");
    EXPECT_THROW(tier->write(stream, 0, there.span()), InvalidArgument);
}

TEST(Devices, ListsAndRefuses) {
    EXPECT_THAT(available_devices(), ::testing::ElementsAre(Device{}, kGpu, Device{DeviceType::cuda, 1}));
    EXPECT_TRUE(is_emulated(kGpu));
    EXPECT_FALSE(is_emulated(Device{}));
    EXPECT_THAT(device_info(kGpu).name, ::testing::HasSubstr("no GPU"));
    EXPECT_EQ(device_from_name("cuda"), kGpu);
    EXPECT_EQ(device_from_name("cuda:3"), (Device{DeviceType::cuda, 3}));
    EXPECT_EQ(device_from_name("cpu"), Device{});
    for (const char* wrong : {"gpu", "cuda:", "cuda:-1", "cuda:1x", ""}) {
        EXPECT_THROW(device_from_name(wrong), InvalidArgument) << wrong;
    }
    try {
        Stream::make({DeviceType::cuda, 2}, "none");
        FAIL() << "cuda:2 of two";
    } catch (const DeviceUnavailable& error) {
        EXPECT_STREQ(error.what(), "cuda:2 was asked for, but there are cuda:0 to cuda:1");
    }
}

}  // namespace
}  // namespace tandem
