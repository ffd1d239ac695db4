// What the emulated GPU refuses or undoes, so that a test sees what would be wrong on a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/graph.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/device/virtual_arena.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem {
namespace {

const Device kEmulated{DeviceType::cuda, 0};

TEST(EmulatedGpu, AHostFunctionMayNotCallTheDevice) {
    Stream other = Stream::make(kEmulated, "other");
    const Tensor there = Tensor::zeros(other, {4}, DType::float32, "on_devices");
    const std::function<void()> calls[] = {
        [&] { fill_zero(other, there.span()); },
        [&] { other.synchronize(); },
        [&] { (void)other.record(); },
        [&] { other.call_host([] {}); },
    };
    for (const auto& call : calls) {
        Stream stream = Stream::make(kEmulated, "calls");
        stream.call_host(call);
        EXPECT_THROW(stream.synchronize(), InvalidArgument);
    }
    other.synchronize();
}

TEST(EmulatedGpu, CrashesTheHostThatTouchesItsMemory) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const Tensor there = Tensor::empty({4}, DType::float32, "on_devices", device_pool(kEmulated));
    EXPECT_TRUE(emulated::owns(there.raw()));
    EXPECT_DEATH(*reinterpret_cast<volatile char*>(there.raw()) = 1, "");
    EXPECT_THROW(there.values<float>(), InvalidArgument);
    EXPECT_THROW(Tensor::zeros({4}, DType::float32, "on_devices", device_pool(kEmulated)), InvalidArgument);
    EXPECT_THROW(there.clone("on_devices"), InvalidArgument);
    Stream cpu = Stream::make_inline();
    std::vector<float> host(4);
    EXPECT_THROW(copy(cpu, there.span(), {reinterpret_cast<std::byte*>(host.data()), 16}), InvalidArgument);
}

TEST(EmulatedGpu, LaunchesOnTheAliasAndRunsEnqueuedWorkAtOnce) {
    Stream stream = Stream::make_compute(kEmulated);
    const Tensor there = Tensor::zeros(stream, {4}, DType::float32, "on_devices");
    const auto caller = std::this_thread::get_id();
    std::thread::id ran;
    stream.enqueue([&] { ran = std::this_thread::get_id(); });
    EXPECT_EQ(ran, caller);
    std::promise<void> gate;
    emulated::launch(stream, [alias = host_alias(there), open = gate.get_future().share(), &ran] {
        open.wait();
        for (float& value : alias.values<float>()) value = 3.0F;
        ran = std::this_thread::get_id();
    });
    const Event done = stream.record();
    EXPECT_EQ(done.poll(), Poll::pending);
    EXPECT_THROW(done.wait(Deadline::after_ms(20)), DeadlineExceeded);
    gate.set_value();
    EXPECT_EQ(there.to_host(stream).to_vector<float>(), std::vector<float>(4, 3.0F));
    EXPECT_NE(ran, caller);
    Stream cpu = Stream::make_inline();
    EXPECT_THROW(emulated::launch(cpu, [] {}), InvalidArgument);
}

TEST(EmulatedGpu, FreedMemoryComesBackInStreamOrderAndPoisoned) {
    Stream stream = Stream::make_compute(kEmulated);
    std::promise<void> gate;
    float seen = 0.0F;
    std::byte* address = nullptr;
    {
        const Tensor there = Tensor::zeros(stream, {1024}, DType::float32, "on_devices");
        address = there.raw();
        emulated::launch(stream, [alias = host_alias(there), open = gate.get_future().share(), &seen] {
            open.wait();
            seen = alias.values<float>()[5];
        });
    }
    const Tensor other = Tensor::empty(stream, {1024}, DType::float32, "on_devices");
    EXPECT_NE(other.raw(), address);  // the launch above still reads the first
    gate.set_value();
    stream.synchronize();
    EXPECT_EQ(seen, 0.0F);
    const Tensor again = Tensor::empty(stream, {1024}, DType::float32, "on_devices");
    EXPECT_EQ(again.raw(), address);
    EXPECT_TRUE(std::isnan(again.to_host(stream).to_vector<float>()[5]));
}

// Whether a block that `stream` still reads when the host gives it back stays whole until it is read.
// `others` are every other stream there is: a block that goes back in their order is poisoned too early.
bool read_before_it_goes_back(Stream& stream, const std::vector<Stream*>& others) {
    std::promise<void> gate;
    float seen = NAN;
    {
        const Tensor there = Tensor::zeros(stream, {1024}, DType::float32, "on_devices");
        emulated::launch(stream, [alias = host_alias(there), open = gate.get_future().share(), &seen] {
            open.wait();
            seen = alias.values<float>()[5];
        });
    }
    for (Stream* other : others) other->synchronize();
    gate.set_value();
    stream.synchronize();
    return seen == 0.0F;
}

TEST(EmulatedGpu, ATemporaryComputeStreamGivesTheThreadItsOwnBack) {
    Stream nccl = Stream::make(kEmulated, "nccl");  // the first of the process, and none that computes
    Stream compute = Stream::make_compute(kEmulated);
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
    {
        Stream temporary = Stream::make_compute(kEmulated);
        EXPECT_TRUE(read_before_it_goes_back(temporary, {&nccl, &compute}));
        {
            const Stream inner = Stream::make_compute(kEmulated);
            compute.use_for_allocations();  // registered twice: still one
        }
        EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl, &temporary}));
        temporary.use_for_allocations();
    }
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
    std::thread([stream = Stream::make_compute(kEmulated)] {}).join();  // ends on another thread
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
}

TEST(EmulatedGpu, AThreadWithoutAComputeStreamFollowsTheProcesss) {
    Stream nccl = Stream::make(kEmulated, "nccl");
    Stream compute = Stream::make_compute(kEmulated);
    std::thread([&] { EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl})); }).join();
}

TEST(EmulatedGpu, OutOfMemoryNamesTagAskedAndFree) {
    MemoryPool& pool = device_pool(kEmulated);
    const std::size_t total = device_info(kEmulated).total_bytes;
    const Buffer half(total / 2, "on_devices", pool);
    try {
        const Buffer more(total, "kv_cache", pool);
        FAIL() << "more than there is";
    } catch (const OutOfMemory& error) {
        EXPECT_STREQ(error.what(),
                     fmt::format("cuda:0 is out of memory: asked for {} bytes for 'kv_cache', {} free", total,
                                 total - total / 2)
                         .c_str());
    }
    EXPECT_EQ(memory_stats("kv_cache").live_bytes, 0U);
}

TEST(EmulatedGpu, VirtualArenasKeepTheirAddressAndGiveTheirPagesBack) {
    Stream stream = Stream::make_compute(kEmulated);
    const std::string tag = "virtual_test";
    constexpr std::size_t kArena = std::size_t{3} << 20;
    const std::size_t total = device_info(kEmulated).total_bytes;
    {
        VirtualArena arena = VirtualArena::create(kEmulated, kArena, tag);
        EXPECT_TRUE(emulated::owns(arena.span().data));
        std::vector<float> values(100);
        std::iota(values.begin(), values.end(), 0.0F);
        const Tensor source = Tensor::from<float>(values, {100});
        const Tensor there = Tensor::borrow(arena.span(), {100}, DType::float32, kEmulated);
        copy(stream, source, there);
        EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
        {
            const int fd = arena.export_fd();
            const VirtualArena twin = VirtualArena::open(kEmulated, fd, kArena);
            ::close(fd);
            EXPECT_EQ(Tensor::borrow(twin.span(), {100}, DType::float32, kEmulated)
                          .to_host(stream)
                          .to_vector<float>(),
                      values);
            EXPECT_EQ(memory_stats(tag).live_bytes, kArena);  // its owner counts it
        }
        arena.release_pages();
        EXPECT_FALSE(arena.has_pages());
        EXPECT_EQ(memory_stats(tag).live_bytes, 0U);
        EXPECT_THROW((void)arena.export_fd(), IpcRefused);
        {
            const Buffer all(total, "on_devices", device_pool(kEmulated));  // what it gave back can be had
            EXPECT_THROW(arena.restore_pages(), OutOfMemory);
        }
        arena.restore_pages();
        copy(stream, source, there);
        EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
        EXPECT_THROW(VirtualArena::open(kEmulated, 0, kArena << 20), IpcRefused);
    }
    EXPECT_EQ(memory_stats(tag).live_bytes, 0U);
    EXPECT_THROW(VirtualArena::create({}, 1, tag), InvalidArgument);
}

TEST(EmulatedGpu, AGraphReplaysWhatWasRecorded) {
    Stream stream = Stream::make_compute(kEmulated);
    const Tensor sum = Tensor::zeros(stream, {4}, DType::float32, "on_devices");
    const Tensor step = Tensor::zeros(stream, {4}, DType::float32, "on_devices");
    std::byte* scratch_address = nullptr;
    Graph graph = Graph::capture(stream, [&] {
        const Tensor scratch =
            Tensor::empty(stream, {4}, DType::float32, "graph_test");  // lives with the graph
        scratch_address = scratch.raw();
        copy(stream, step, scratch);
        emulated::launch(stream, [from = host_alias(scratch), to = host_alias(sum)] {
            for (int i = 0; i < 4; ++i) to.data<float>()[i] += from.data<float>()[i];
        });
        EXPECT_THROW(stream.synchronize(), InvalidArgument);
        EXPECT_THROW(stream.record(), InvalidArgument);
    });
    EXPECT_EQ(sum.to_host(stream).to_vector<float>(), std::vector<float>(4, 0.0F));  // nothing ran yet
    for (float value = 1; value <= 3; ++value) {
        const std::vector<float> values(4, value);
        const Tensor source = Tensor::from<float>(values, {4});
        copy(stream, source, step);
        graph.launch(stream);
        const Tensor other = Tensor::empty(stream, {4}, DType::float32, "on_devices");
        EXPECT_NE(other.raw(), scratch_address);
        stream.synchronize();
    }
    EXPECT_EQ(sum.to_host(stream).to_vector<float>(), std::vector<float>(4, 6.0F));
    graph = {};
    EXPECT_EQ(Tensor::empty(stream, {4}, DType::float32, "on_devices").raw(), scratch_address);
    EXPECT_THROW(graph.launch(stream), InvalidArgument);
    EXPECT_THROW(Graph::capture(stream, [] { throw Error("while recording"); }), Error);
    stream.synchronize();  // and goes on
    Stream cpu = Stream::make_inline();
    EXPECT_THROW(Graph::capture(cpu, [] {}), InvalidArgument);
}

// What a GPU's driver refuses while it captures, or what would replay the host's values of then.
TEST(EmulatedGpu, AGraphRefusesWhatAGpuRefuses) {
    Stream stream = Stream::make_compute(kEmulated);
    const Tensor x = Tensor::zeros(stream, {4, 2}, DType::float32, "on_devices");
    const Tensor host = Tensor::zeros({4, 2}, DType::float32, "on_devices");
    stream.synchronize();
    const auto refused = [&](const std::function<void()>& record) {
        EXPECT_THROW(Graph::capture(stream, record), InvalidArgument);
        stream.synchronize();  // and goes on
    };
    refused([&] { stream.synchronize(); });
    refused([&] { stream.call_host([] {}); });
    refused([&] { copy(stream, host, x); });
    refused([&] { copy(stream, x, host); });
    refused([&] { (void)x.to_host(stream); });
    refused([&] { (void)ExportArena::create(kEmulated, 64, "on_devices"); });
    Tensor before = Tensor::zeros(stream, {4}, DType::float32, "on_devices");
    refused([&] { before = Tensor(); });
    Tensor kept;
    refused([&] { kept = Tensor::empty(stream, {4}, DType::float32, "on_devices"); });
    kept = Tensor();
    stream.synchronize();
    Graph::capture(stream, [&] { fill_zero(stream, x.span()); }).launch(stream);
    stream.synchronize();
}

TEST(EmulatedGpu, WorkErrorsStickToTheStream) {
    Stream stream = Stream::make(kEmulated, "failing");
    emulated::launch(stream, [] { throw Error("a kernel failed"); });
    bool later = false;
    emulated::launch(stream, [&] { later = true; });
    const Event after = stream.record();
    EXPECT_THROW(stream.synchronize(), Error);
    EXPECT_EQ(after.poll(), Poll::failed);
    EXPECT_FALSE(later);
}

}  // namespace
}  // namespace tandem
