// What CUDA forbids: the wrong context, work and waits beside a capture. The
// fake driver refuses them as CUDA does.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/graph.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/device/tier.h"
#include "common/error.h"
#include "tests/support/soon.h"
#include "tests/unit/common/device/cuda_rig.h"

namespace tandem {
namespace {

using testing::current_context;
using testing::FakeGpu;
using ::testing::HasSubstr;

using CudaRules = Cuda;

TEST_F(CudaRules, PinnedMemoryTakesTheContextThatIsThere) {
    fake.gpus = {FakeGpu{}, FakeGpu{}};
    again();
    const Device second{DeviceType::cuda, 1};
    const auto on_its_own_thread = [&](const std::function<void()>& work) { std::thread(work).join(); };
    on_its_own_thread([&] {
        Stream stream = Stream::make(second, "second");
        const CUcontext context = current_context();
        const auto tier = make_pinned_tier(std::size_t{1} << 23, "cuda_test");
        EXPECT_EQ(current_context(), context);  // an op that stages goes on launching there
        EXPECT_EQ(fake.contexts.size(), 1U);    // and the first GPU has none
        stream.record().wait(test::soon());
    });
    on_its_own_thread([&] {
        ASSERT_EQ(current_context(), nullptr);
        const auto tier = make_pinned_tier(std::size_t{1} << 24, "cuda_test");
        EXPECT_EQ(fake.contexts.size(), 1U);
    });
}

TEST_F(CudaRules, OneGpuOfTheProcessReachesAnother) {
    fake.gpus = {FakeGpu{}, FakeGpu{}};
    again();
    const Device second{DeviceType::cuda, 1};
    enable_peer_access(kGpu, kGpu);
    EXPECT_TRUE(fake.peers.empty());
    enable_peer_access(second, kGpu);
    enable_peer_access(second, kGpu);
    ASSERT_EQ(fake.peers.size(), 1U);
    EXPECT_EQ(current_context(), fake.peers.begin()->first);  // the reader's
    EXPECT_NE(fake.peers.begin()->first, fake.peers.begin()->second);
    fake.peer_access = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    EXPECT_THAT(message<IpcRefused>([&] { enable_peer_access(kGpu, second); }), HasSubstr("no peer access"));
}

TEST_F(CudaRules, ACaptureThatWaitsIsSpoiltAndSaysSo) {
    Stream stream = Stream::make_compute(kGpu);
    const Event before = stream.record();
    const std::function<void()> bodies[] = {
        [&] { stream.synchronize(); },
        [&] { (void)before.poll(); },
        [&] { const ExportArena arena = ExportArena::create(kGpu, 100, "cuda_test"); },
        [&] { trim_device_pool(kGpu); },
    };
    for (const auto& body : bodies) EXPECT_THROW(Graph::capture(stream, body), CudaError);
    EXPECT_EQ(fake.graphs, 0);
    stream.synchronize();  // as before
    Graph::capture(stream, [] { const Buffer block(100, "cuda_test", device_pool(kGpu)); }).launch(stream);
}

// What other threads do meanwhile neither spoils a capture nor gets into its graph.
TEST_F(CudaRules, OtherThreadsWaitForACapturesEnd) {
    Stream stream = Stream::make_compute(kGpu);
    std::atomic<bool> recorded{false};
    bool early = false;
    std::vector<std::thread> others;
    Buffer kept(1000, "cuda_test", device_pool(kGpu));
    const std::function<void()> works[] = {
        [] { const ExportArena arena = ExportArena::create(kGpu, 100, "cuda_test"); },
        [] {
            const Buffer block(100, "cuda_test", device_pool(kGpu));
        },  // of the first stream: the captured one
        [&] { kept = {}; },
        [] { trim_device_pool(kGpu); },
    };
    for (const auto& work : works) {
        const Graph graph = Graph::capture(stream, [&] {
            recorded = false;
            others.emplace_back([&] {
                work();
                early = early || !recorded;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            recorded = true;
        });
        others.back().join();
    }
    EXPECT_FALSE(early);
    EXPECT_EQ(fake.used, 0U);
}

}  // namespace
}  // namespace tandem
