// The CUDA device layer over a fake driver: which calls it makes, and what it says when one is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "common/device/cuda/driver.h"
#include "common/device/cuda/memory.h"
#include "common/device/cuda/native.h"
#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/graph.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/device/tier.h"
#include "common/device/virtual_arena.h"
#include "common/tensor/tensor.h"
#include "tests/support/soon.h"
#include "tests/unit/common/device/cuda_rig.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using testing::FakeGpu;
using ::testing::HasSubstr;
using ::testing::Ne;

TEST_F(Cuda, MissingDriverOldDriverAndOldGpuAreNamed) {
    const auto asked = [] { return message<DeviceUnavailable>([] { Stream::make(kGpu, "x"); }); };
    cuda::replace_driver(nullptr, "there is no NVIDIA driver (libcuda.so.1: not found)");
    EXPECT_THAT(asked(),
                AllOf(HasSubstr("cuda:0 was asked for, but no GPU can be used"), HasSubstr("libcuda.so.1")));
    EXPECT_EQ(available_devices().size(), 1U);
    EXPECT_EQ(&pinned_pool(), &cpu_pool());

    fake.version = 12040;
    again();
    EXPECT_THAT(asked(),
                AllOf(HasSubstr("supports CUDA 12.4"), HasSubstr("needs 13.0"), HasSubstr("580 or newer")));
    fake.version = 13000;

    fake.init = CUDA_ERROR_NO_DEVICE;
    again();
    EXPECT_THAT(asked(), HasSubstr("sees no GPU"));
    fake.init = CUDA_SUCCESS;

    fake.gpus = {FakeGpu{"Tesla T4", 7, 5, 1 << 30}, FakeGpu{}};
    again();
    EXPECT_THAT(asked(), HasSubstr("Tesla T4 has compute capability 7.5, and Tandem needs 8.0"));
    EXPECT_THAT(available_devices(), ::testing::ElementsAre(Device{}, Device{DeviceType::cuda, 1}));
    EXPECT_EQ(device_info({DeviceType::cuda, 1}).capability, 90);
    EXPECT_EQ(device_info({DeviceType::cuda, 1}).name, "Fake H200");
    EXPECT_THAT(message<DeviceUnavailable>([] {
                    require_device({DeviceType::cuda, 2});
                }),
                HasSubstr("there are cuda:0 to cuda:1"));
    EXPECT_FALSE(can_access_peer({DeviceType::cuda, 1}, {DeviceType::cuda, 1}) == false);
}

TEST_F(Cuda, TensorsGoThereAndBack) {
    {
        Stream stream = Stream::make_compute(kGpu);
        EXPECT_NE(cuda::native(stream), nullptr);
        const std::vector<float> values{1, 2, 3};
        const Tensor there = Tensor::from<float>(values, {3}).to(stream, kGpu, "cuda_test");
        EXPECT_EQ(there.device(), kGpu);
        EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
        EXPECT_EQ(Tensor::zeros(stream, {2}, DType::float32, "cuda_test").to_host(stream).to_vector<float>(),
                  std::vector<float>(2, 0.0F));
        EXPECT_GT(fake.used, 0U);
    }
    EXPECT_EQ(fake.used, 0U);
    EXPECT_TRUE(fake.events.empty());
    Stream cpu = Stream::make_inline();
    EXPECT_THROW(cuda::native(cpu), InvalidArgument);
}

TEST_F(Cuda, EventsArePendingUntilTheStreamGetsThere) {
    Stream stream = Stream::make(kGpu, "slow");
    fake.hold();
    int called = 0;
    stream.call_host([&] { ++called; });
    int at_once = 0;
    stream.enqueue([&] { ++at_once; });
    EXPECT_EQ(at_once, 1);
    const Event event = stream.record();
    EXPECT_EQ(event.poll(), Poll::pending);
    EXPECT_THAT(message<DeadlineExceeded>([&] { event.wait(Deadline::after_ms(5)); }),
                HasSubstr("stream slow"));
    fake.let_go();
    event.wait(test::soon());
    EXPECT_EQ(event.poll(), Poll::done);
    EXPECT_EQ(called, 0);
    stream.synchronize();
    EXPECT_EQ(called, 1);
}

// What the host does with a result is no work of the stream's, which goes on meanwhile.
TEST_F(Cuda, AStreamDoesNotStopForTheHost) {
    std::vector<int> order;
    std::vector<std::byte> from(8), to(8);
    {
        Stream stream = Stream::make(kGpu, "results");
        fake.hold();
        for (int i = 0; i < 3; ++i) {
            copy(stream, {from.data(), 8}, {to.data(), 8});
            stream.call_host([&order, i] { order.push_back(i); });
        }
        EXPECT_EQ((*fake.streams.begin())->queue.size(), 3U);  // the copies
        EXPECT_TRUE(order.empty());
        stream.synchronize();
        EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
        stream.call_host([&] { order.push_back(3); });
        stream.synchronize();
        EXPECT_EQ(order.size(), 4U);
        stream.call_host([&] { order.push_back(4); });
    }
    EXPECT_EQ(order.size(), 4U);  // nobody waited for the last one
}

TEST_F(Cuda, StreamsWaitForEachOtherWithoutTheHost) {
    Stream one = Stream::make(kGpu, "one");
    Stream two = Stream::make(kGpu, "two");
    fake.hold();
    two.wait(one.record());
    EXPECT_THAT(fake.calls, Contains("cuStreamWaitEvent"));
    Stream worker = Stream::make_worker("host");
    bool ran = false;
    worker.enqueue([&] { ran = true; });
    two.wait(worker.record());  // of the CPU: the host waits
    EXPECT_TRUE(ran);
}

TEST_F(Cuda, AsynchronousErrorsStick) {
    {
        Stream stream = Stream::make(kGpu, "broken");
        const Event event = stream.record();
        fake.sticky = CUDA_ERROR_LAUNCH_FAILED;
        EXPECT_EQ(event.poll(), Poll::failed);
        EXPECT_THAT(message<CudaError>([&] { event.wait(Deadline::after_ms(1000)); }),
                    AllOf(HasSubstr("work on stream 'broken'"), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
        EXPECT_THROW(stream.synchronize(), CudaError);
        EXPECT_THROW(stream.record(), CudaError);
    }  // ends without throwing
    fake.sticky = CUDA_SUCCESS;
    Stream stream = Stream::make(kGpu, "host");
    stream.call_host([] { throw Error("the host's part failed"); });
    bool later = false;
    stream.call_host([&] { later = true; });
    for (int i = 0; i < 2; ++i)
        EXPECT_EQ(message<Error>([&] { stream.synchronize(); }), "the host's part failed");
    EXPECT_FALSE(later);
}

TEST_F(Cuda, MemoryGoesBackInTheComputeStreamsOrder) {
    Stream stream = Stream::make_compute(kGpu);
    fake.hold();
    { const Buffer block(1000, "cuda_test", device_pool(kGpu)); }
    EXPECT_EQ(fake.used, 1000U);  // the stream may still use it
    fake.let_go();
    EXPECT_EQ(fake.used, 0U);
    Buffer outlives(1000, "cuda_test", device_pool(kGpu));
    { Stream ends = std::move(stream); }
    outlives = {};
    EXPECT_EQ(fake.used, 0U);
}

// Also in a process that never takes memory from the pool itself, as one with arenas alone: its kernels do.
TEST_F(Cuda, WhatKernelsFreeIsKeptForTheNext) {
    const Stream stream = Stream::make(kGpu, "copies");
    EXPECT_EQ(fake.pool_keeps, ~cuuint64_t{0});
}

TEST_F(Cuda, OutOfMemoryTriesOnceMoreAndNamesTagAskedAndFree) {
    for (const int pools : {1, 0}) {
        fake.pools = pools;
        again();
        Stream stream = Stream::make_compute(kGpu);
        const Buffer some(1000, "cuda_test", device_pool(kGpu));
        EXPECT_EQ(message<OutOfMemory>(
                      [] { const Buffer more(std::size_t{1} << 30, "kv_cache", device_pool(kGpu)); }),
                  "cuda:0 is out of memory: asked for 1073741824 bytes for 'kv_cache', 1073740824 free");
        EXPECT_EQ(memory_stats("kv_cache").live_bytes, 0U);
        EXPECT_THAT(
            message<OutOfMemory>([] { ExportArena::create(kGpu, std::size_t{1} << 30, "arena_test"); }),
            HasSubstr("for 'arena_test'"));
        // The pool gave back what it kept, before it gave up.
        if (pools == 1) {
            EXPECT_THAT(fake.calls, Contains("cuMemPoolTrimTo"));
            EXPECT_THAT(fake.calls, Contains("cuDeviceGraphMemTrim"));
        }
    }
}

// On a thread that has used no GPU: its end may not begin GPU 0 for it.
TEST_F(Cuda, LastingMemoryEndsOnAnyThreadAndTouchesItsOwnGpuOnly) {
    fake.gpus = {FakeGpu{}, FakeGpu{}};
    again();
    const Device second{DeviceType::cuda, 1};
    std::byte* data = cuda::allocate_lasting(second, 1000, "cuda_test");
    EXPECT_EQ(fake.used, 1000U);
    std::thread([&] {
        cuda::free_lasting(second, data);
        EXPECT_EQ(testing::current_context(), nullptr);
    }).join();
    EXPECT_EQ(fake.used, 0U);
    EXPECT_EQ(fake.contexts.size(), 1U);
    EXPECT_THAT(message<OutOfMemory>([&] { cuda::allocate_lasting(second, std::size_t{2} << 30, "tables"); }),
                HasSubstr("for 'tables'"));
    data = cuda::allocate_lasting(second, 1000, "cuda_test");
    fake.sticky = CUDA_ERROR_LAUNCH_FAILED;  // a GPU that failed gives its memory back all the same
    cuda::free_lasting(second, data);
    fake.sticky = CUDA_SUCCESS;
    EXPECT_EQ(fake.used, 0U);
}

TEST_F(Cuda, FreeBytesAreTheDrivers) {
    const std::uint64_t before = free_bytes(kGpu);
    EXPECT_EQ(before, fake.gpus[0].bytes);
    const ExportArena arena = ExportArena::create(kGpu, std::size_t{4} << 20, "arena_test");
    EXPECT_EQ(free_bytes(kGpu), before - (std::size_t{4} << 20));
}

TEST_F(Cuda, WhoOpensAnArenaNeverFreesIt) {
    const ExportArena arena = ExportArena::create(kGpu, 5'000'000, "arena_test");
    EXPECT_EQ(arena.bytes(), 5'000'000U);
    EXPECT_EQ(fake.used % (std::size_t{2} << 20), 0U);  // whole pieces of the driver's
    const IpcHandle handle = arena.handle();
    {
        const OpenedArena opened = OpenedArena::open(kGpu, handle, 5'000'000);
        EXPECT_EQ(opened.span().bytes, 5'000'000U);
        { const OpenedArena again = OpenedArena::open(kGpu, handle, 4096); }  // the driver counts
        EXPECT_EQ(fake.opened.size(), 1U);
    }
    EXPECT_TRUE(fake.opened.empty());
    EXPECT_THAT(fake.calls, Contains("cuIpcCloseMemHandle"));
    EXPECT_THAT(fake.calls, Each(Ne("cuMemFree")));
    EXPECT_THAT(message<IpcRefused>([&] { OpenedArena::open(kGpu, handle, 50'000'000); }),
                HasSubstr("6291456 bytes were exported, 50000000 asked for"));
    EXPECT_TRUE(fake.opened.empty());
    const ExportedRange range = export_range(kGpu, {arena.data() + 4096, 100});
    EXPECT_EQ(range.handle, handle);
    EXPECT_EQ(range.offset, 4096U);
    EXPECT_EQ(range.allocation_bytes, 6'291'456U);
}

TEST_F(Cuda, RefusedIpcSaysWhyAndWhatToDo) {
    const ExportArena arena = ExportArena::create(kGpu, 4096, "arena_test");
    const IpcHandle handle = arena.handle();
    const auto opening = [&](CUresult answer) {
        fake.ipc_open = answer;
        return message<IpcRefused>([&] { OpenedArena::open(kGpu, handle, 4096); });
    };
    EXPECT_THAT(opening(CUDA_ERROR_INVALID_VALUE), HasSubstr("runs as another user"));
    EXPECT_THAT(opening(CUDA_ERROR_INVALID_CONTEXT), HasSubstr("handle of its own memory"));
    EXPECT_THAT(opening(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), HasSubstr("no peer access"));
    EXPECT_THAT(opening(CUDA_ERROR_TOO_MANY_PEERS), HasSubstr("no peer access"));
    EXPECT_THAT(message<IpcRefused>([&] { SharedEvent::open(kGpu, handle); }), HasSubstr("no peer access"));
    fake.ipc_get = CUDA_ERROR_INVALID_VALUE;
    EXPECT_THAT(message<IpcRefused>([&] { (void)arena.handle(); }),
                AllOf(HasSubstr("CUDA_ERROR_INVALID_VALUE"), HasSubstr("cuMemCreate")));
    EXPECT_THAT(message<IpcRefused>([&] {
                    export_range(kGpu, {nullptr, 8});
                }),
                HasSubstr("knows no allocation"));
}

TEST_F(Cuda, SharedEventsAreRecordedAndWaitedForOnStreams) {
    Stream stream = Stream::make(kGpu, "exporter");
    SharedEvent event = SharedEvent::create(kGpu);
    const IpcHandle handle = event.handle();
    fake.hold();
    event.record(stream);
    EXPECT_THROW(event.wait(Deadline::after_ms(2)), DeadlineExceeded);
    fake.let_go();
    event.wait(test::soon());
    SharedEvent::open(kGpu, handle).wait(stream);
    EXPECT_THAT(fake.calls, Contains("cuStreamWaitEvent"));
    Stream cpu = Stream::make_inline();
    EXPECT_THROW(event.record(cpu), InvalidArgument);
}

TEST_F(Cuda, VirtualArenasMapAndUnmapPagesAtOneAddress) {
    {
        VirtualArena arena = VirtualArena::create(kGpu, 3 << 20, "virtual_test");
        std::byte* const address = arena.span().data;
        EXPECT_EQ(arena.span().bytes, std::size_t{3} << 20);
        EXPECT_EQ(fake.used, std::size_t{4} << 20);  // whole granules
        EXPECT_EQ(memory_stats("virtual_test").live_bytes, std::uint64_t{3} << 20);
        EXPECT_EQ(arena.export_fd(), 77);
        arena.release_pages();
        EXPECT_EQ(fake.used, 0U);
        EXPECT_EQ(memory_stats("virtual_test").live_bytes, 0U);
        arena.restore_pages();
        EXPECT_EQ(arena.span().data, address);
        EXPECT_EQ(fake.mapped.size(), 1U);
        const VirtualArena opened = VirtualArena::open(kGpu, 77, 3 << 20);
        EXPECT_EQ(fake.mapped.size(), 2U);
        EXPECT_THAT(message<IpcRefused>([] { VirtualArena::open(kGpu, 5, 3 << 20); }),
                    HasSubstr("descriptor 5 cannot be opened"));
        EXPECT_THAT(
            message<OutOfMemory>([] { VirtualArena::create(kGpu, std::size_t{1} << 30, "kv_cache"); }),
            HasSubstr("for 'kv_cache'"));
        fake.set_access = CUDA_ERROR_INVALID_VALUE;
        EXPECT_THROW(VirtualArena::create(kGpu, 100, "virtual_test"), CudaError);
        fake.set_access = CUDA_SUCCESS;
        fake.ipc_get = CUDA_ERROR_INVALID_VALUE;
        EXPECT_THROW((void)arena.export_fd(), IpcRefused);
    }
    EXPECT_EQ(fake.used, 0U);
    EXPECT_TRUE(fake.reserved.empty() && fake.mapped.empty() && fake.pages.empty());
    fake.virtual_memory = 0;
    EXPECT_THAT(message<DeviceUnavailable>([] { VirtualArena::create(kGpu, 100, "virtual_test"); }),
                HasSubstr("has no virtual memory management"));
}

TEST_F(Cuda, GraphsAreRecordedOnceAndLaunchedAgain) {
    Stream stream = Stream::make_compute(kGpu);
    int runs = 0;
    {
        std::byte memory{1};
        Graph graph = Graph::capture(stream, [&] { fill_zero(stream, {&memory, 1}); });
        for (int launch = 0; launch < 2; ++launch) {
            EXPECT_NE(memory, std::byte{0});
            graph.launch(stream);
            EXPECT_EQ(std::exchange(memory, std::byte{1}), std::byte{0});
        }
        EXPECT_EQ(fake.graphs, 1);
    }
    EXPECT_THROW(Graph::capture(stream, [] { throw Error("while recording"); }), Error);
    EXPECT_THROW(Graph::capture(stream, [&] { stream.call_host([&] { ++runs; }); }), InvalidArgument);
    EXPECT_EQ(fake.graphs, 0);
    stream.call_host([&] { ++runs; });
    stream.synchronize();
    EXPECT_EQ(runs, 1);  // no longer recording
}

TEST_F(Cuda, AForkedProcessIsToldThatItCannotUseTheGpu) {
    const Stream stream = Stream::make(kGpu, "parent");
    const pid_t child = ::fork();
    if (child == 0) {
        const std::string why = message<DeviceUnavailable>([] { device_pool(kGpu).allocate(8); });
        ::_exit(why.find("forked from one that had used a GPU") == std::string::npos ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Cuda, PinnedMemoryComesFromTheDriver) {
    EXPECT_NE(&pinned_pool(), &cpu_pool());
    const auto tier = make_pinned_tier(100, "cuda_test");
    EXPECT_THAT(fake.calls, Contains("cuMemHostAlloc"));
    EXPECT_EQ(pinned_pool().device(), Device{});
}

}  // namespace
}  // namespace tandem
