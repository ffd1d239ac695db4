// The device layer on the first real GPU: streams, events, copies, pools, pinned memory and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "common/device/cuda/driver.h"
#include "common/device/cuda/native.h"
#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/graph.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/device/tier.h"
#include "common/device/virtual_arena.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem {
namespace {

const Device kGpu{DeviceType::cuda, 0};
constexpr std::int64_t kMany = 1 << 22;

std::vector<std::int32_t> count_from(std::int32_t first, std::int64_t n) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), first);
    return values;
}

TEST(Gpu, IsThereAndNamed) {
    require_device(kGpu);
    EXPECT_FALSE(is_emulated(kGpu));
    const DeviceInfo info = device_info(kGpu);
    EXPECT_GE(info.capability, 80);
    EXPECT_GT(info.total_bytes, std::uint64_t{8} << 30);
    EXPECT_THAT(info.identity, ::testing::MatchesRegex("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
    EXPECT_LE(free_bytes(kGpu), info.total_bytes);
    RecordProperty("gpu", info.name);
}

TEST(Gpu, TensorsGoThereAndBackOnTwoStreams) {
    Stream compute = Stream::make_compute(kGpu);
    Stream beside = Stream::make(kGpu, "beside");
    EXPECT_NE(cuda::native(compute), cuda::native(beside));
    Buffer pinned(kMany * 4, "gpu_test", pinned_pool());
    for (int round = 0; round < 10; ++round) {
        const auto values = count_from(round, kMany);
        std::memcpy(pinned.data(), values.data(), pinned.bytes());
        const Tensor there = Tensor::empty(compute, {kMany}, DType::int32, "gpu_test");
        beside.wait(compute.record());  // the memory is the compute stream's
        copy(beside, pinned.span(), there.span());
        compute.wait(beside.record());
        const Tensor twin = Tensor::empty(compute, {kMany}, DType::int32, "gpu_test");
        copy(compute, there, twin);
        ASSERT_EQ(twin.to_host(compute).to_vector<std::int32_t>(), values) << round;
    }
    EXPECT_EQ(
        Tensor::zeros(compute, {1000}, DType::int32, "gpu_test").to_host(compute).to_vector<std::int32_t>(),
        std::vector<std::int32_t>(1000, 0));
}

TEST(Gpu, EventsPollAndHostCallsComeInOrder) {
    Stream stream = Stream::make(kGpu, "events");
    std::vector<int> order;
    for (int i = 0; i < 50; ++i) stream.call_host([&order, i] { order.push_back(i); });
    const Event event = stream.record();
    event.wait(Deadline::after_ms(10'000));
    EXPECT_EQ(event.poll(), Poll::done);
    stream.synchronize();
    EXPECT_EQ(order.size(), 50U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    stream.call_host([] { throw Error("the host's part failed"); });
    EXPECT_THROW(stream.synchronize(), Error);
}

TEST(Gpu, FreedMemoryIsNotHandedOutBeforeTheStreamIsPastIt) {
    Stream stream = Stream::make_compute(kGpu);
    std::vector<Tensor> kept;
    for (std::int32_t i = 0; i < 20; ++i) {
        const auto values = count_from(i, kMany / 4);
        const Tensor source = Tensor::from<std::int32_t>(values, {kMany / 4});
        const Tensor there = source.to(stream, kGpu, "gpu_test");
        kept.push_back(Tensor::empty({kMany / 4}, DType::int32, "gpu_test", pinned_pool()));
        copy(stream, there, kept.back());
        stream.record().wait(Deadline::after_ms(10'000));  // `source` may go
    }
    for (std::int32_t i = 0; i < 20; ++i) {
        EXPECT_EQ(kept[static_cast<std::size_t>(i)].to_vector<std::int32_t>(), count_from(i, kMany / 4)) << i;
    }
    trim_device_pool(kGpu);
}

TEST(Gpu, PinnedTierKeepsState) {
    Stream stream = Stream::make_compute(kGpu);
    const auto tier = make_pinned_tier(kMany * 4, "gpu_test_tier");
    const auto values = count_from(7, kMany);
    Tensor there = Tensor::from<std::int32_t>(values, {kMany}).to(stream, kGpu, "gpu_test");
    tier->write(stream, 0, there.span());
    fill_zero(stream, there.span());
    tier->read(stream, 0, there.span());
    EXPECT_EQ(there.to_host(stream).to_vector<std::int32_t>(), values);
}

TEST(Gpu, OutOfMemoryNamesTagAskedAndFree) {
    const std::uint64_t total = device_info(kGpu).total_bytes;
    Stream stream = Stream::make_compute(kGpu);
    try {
        const Buffer more(total * 2, "kv_cache", device_pool(kGpu));
        FAIL() << "twice what there is";
    } catch (const OutOfMemory& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("cuda:0 is out of memory: asked for"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("for 'kv_cache'"));
        EXPECT_GT(error.free_bytes(), 0U);
    }
    EXPECT_THROW(ExportArena::create(kGpu, total * 2), OutOfMemory);
    const Buffer some(1 << 20, "gpu_test", device_pool(kGpu));  // and goes on
    fill_zero(stream, some.span());
    stream.synchronize();
}

TEST(Gpu, VirtualArenasGiveTheirPagesBack) {
    Stream stream = Stream::make_compute(kGpu);
    VirtualArena arena = VirtualArena::create(kGpu, kMany * 4, "gpu_test");
    const auto values = count_from(3, kMany);
    const Tensor source = Tensor::from<std::int32_t>(values, {kMany});
    const Tensor there = Tensor::borrow(arena.span(), {kMany}, DType::int32, kGpu);
    for (int round = 0; round < 3; ++round) {
        copy(stream, source, there);
        EXPECT_EQ(there.to_host(stream).to_vector<std::int32_t>(), values);
        arena.release_pages();
        EXPECT_FALSE(arena.has_pages());
        arena.restore_pages();
    }
    copy(stream, source, there);
    const int fd = arena.export_fd();
    const VirtualArena twin = VirtualArena::open(kGpu, fd, kMany * 4);
    ::close(fd);
    EXPECT_EQ(
        Tensor::borrow(twin.span(), {kMany}, DType::int32, kGpu).to_host(stream).to_vector<std::int32_t>(),
        values);
}

TEST(Gpu, AGraphReplaysCopiesWithScratchMemory) {
    Stream stream = Stream::make_compute(kGpu);
    const Tensor from = Tensor::zeros(stream, {kMany}, DType::int32, "gpu_test");
    const Tensor to = Tensor::zeros(stream, {kMany}, DType::int32, "gpu_test");
    const Graph graph = Graph::capture(stream, [&] {
        const Tensor scratch = Tensor::empty(stream, {kMany}, DType::int32, "gpu_test");
        copy(stream, from, scratch);
        copy(stream, scratch, to);
    });
    for (std::int32_t round = 0; round < 3; ++round) {
        const auto values = count_from(round, kMany);
        const Tensor source = Tensor::from<std::int32_t>(values, {kMany});
        copy(stream, source, from);
        graph.launch(stream);
        EXPECT_EQ(to.to_host(stream).to_vector<std::int32_t>(), values);
    }
}

TEST(Gpu, ACaptureThatWaitsIsRefusedAndTheStreamGoesOn) {
    Stream stream = Stream::make_compute(kGpu);
    const Event before = stream.record();
    EXPECT_THROW(Graph::capture(stream, [&] { stream.synchronize(); }), CudaError);
    EXPECT_THROW(Graph::capture(stream, [&] { (void)before.poll(); }), CudaError);
    EXPECT_THROW(Graph::capture(stream, [] { trim_device_pool(kGpu); }), CudaError);
    EXPECT_EQ(Tensor::zeros(stream, {2}, DType::float32, "gpu_test").to_host(stream).to_vector<float>(),
              std::vector<float>(2, 0.0F));
}

TEST(Gpu, OtherThreadsWaitForACapturesEnd) {
    Stream stream = Stream::make_compute(kGpu);
    Buffer kept(4096, "gpu_test", device_pool(kGpu));
    const Tensor to = Tensor::zeros(stream, {kMany}, DType::int32, "gpu_test");
    const std::function<void()> works[] = {
        [] { const ExportArena arena = ExportArena::create(kGpu, 100); },
        [] { const Buffer block(100, "gpu_test", device_pool(kGpu)); },
        [&] { kept = {}; },
        [] { trim_device_pool(kGpu); },
    };
    for (const auto& work : works) {
        std::thread other;
        const Graph graph = Graph::capture(stream, [&] {
            other = std::thread(work);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            fill_zero(stream, to.span());
        });
        other.join();
        graph.launch(stream);
        stream.synchronize();
    }
}

TEST(Gpu, PinnedMemoryLeavesTheCurrentDevice) {
    const Device last = available_devices().back();
    std::thread([&] {
        Stream stream = Stream::make(last, "last");
        CUcontext before = nullptr;
        CUcontext after = nullptr;
        EXPECT_EQ(cuda::driver().cuCtxGetCurrent(&before), CUDA_SUCCESS);
        const auto tier = make_pinned_tier(5'000'000, "gpu_test");
        EXPECT_EQ(cuda::driver().cuCtxGetCurrent(&after), CUDA_SUCCESS);
        EXPECT_EQ(after, before);
        stream.synchronize();
    }).join();
}

TEST(Gpu, PoolMemoryCannotBeExported) {
    Stream stream = Stream::make_compute(kGpu);
    const Buffer some(4 << 20, "gpu_test", device_pool(kGpu));
    EXPECT_THROW(export_range(kGpu, some.span()), IpcRefused);
    const ExportArena arena = ExportArena::create(kGpu, 4 << 20);
    EXPECT_THROW(OpenedArena::open(kGpu, arena.handle(), arena.bytes()), IpcRefused);  // its own
    const ExportedRange range = export_range(kGpu, {arena.data() + 1024, 512});
    EXPECT_EQ(range.handle, arena.handle());
    EXPECT_EQ(range.offset, 1024U);
}

}  // namespace
}  // namespace tandem
