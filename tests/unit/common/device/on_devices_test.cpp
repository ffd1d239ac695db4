// What holds on the CPU and on an emulated GPU alike: streams, copies, pools and tensors of a Device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
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
#include "common/device/tier.h"
#include "common/device/virtual_arena.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"

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
    other.record().wait(Deadline::after_ms(10'000));
}

TEST_P(OnDevice, HostCallsComeInOrder) {
    Stream stream = Stream::make(GetParam(), "calls");
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) stream.call_host([&order, i] { order.push_back(i); });
    stream.synchronize();
    ASSERT_EQ(order.size(), 20U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(EmulatedGpu, AHostFunctionMayNotCallTheDevice) {
    Stream other = Stream::make(kGpu, "other");
    const Tensor there = Tensor::zeros(other, {4}, DType::float32, "on_devices");
    const std::function<void()> calls[] = {
        [&] { fill_zero(other, there.span()); },
        [&] { other.synchronize(); },
        [&] { (void)other.record(); },
        [&] { other.call_host([] {}); },
    };
    for (const auto& call : calls) {
        Stream stream = Stream::make(kGpu, "calls");
        stream.call_host(call);
        EXPECT_THROW(stream.synchronize(), InvalidArgument);
    }
    other.synchronize();
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

TEST(EmulatedGpu, CrashesTheHostThatTouchesItsMemory) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const Tensor there = Tensor::empty({4}, DType::float32, "on_devices", device_pool(kGpu));
    EXPECT_TRUE(emulated::owns(there.raw()));
    EXPECT_DEATH(*reinterpret_cast<volatile char*>(there.raw()) = 1, "");
    EXPECT_THROW(there.values<float>(), InvalidArgument);
    EXPECT_THROW(Tensor::zeros({4}, DType::float32, "on_devices", device_pool(kGpu)), InvalidArgument);
    EXPECT_THROW(there.clone("on_devices"), InvalidArgument);
    Stream cpu = Stream::make_inline();
    std::vector<float> host(4);
    EXPECT_THROW(copy(cpu, there.span(), {reinterpret_cast<std::byte*>(host.data()), 16}), InvalidArgument);
}

TEST(EmulatedGpu, LaunchesOnTheAliasAndRunsEnqueuedWorkAtOnce) {
    Stream stream = Stream::make_compute(kGpu);
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
    Stream stream = Stream::make_compute(kGpu);
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
    Stream nccl = Stream::make(kGpu, "nccl");  // the first of the process, and none that computes
    Stream compute = Stream::make_compute(kGpu);
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
    {
        Stream temporary = Stream::make_compute(kGpu);
        EXPECT_TRUE(read_before_it_goes_back(temporary, {&nccl, &compute}));
        {
            const Stream inner = Stream::make_compute(kGpu);
            compute.use_for_allocations();  // registered twice: still one
        }
        EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl, &temporary}));
        temporary.use_for_allocations();
    }
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
    std::thread([stream = Stream::make_compute(kGpu)] {}).join();  // ends on another thread
    EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl}));
}

TEST(EmulatedGpu, AThreadWithoutAComputeStreamFollowsTheProcesss) {
    Stream nccl = Stream::make(kGpu, "nccl");
    Stream compute = Stream::make_compute(kGpu);
    std::thread([&] { EXPECT_TRUE(read_before_it_goes_back(compute, {&nccl})); }).join();
}

TEST(EmulatedGpu, OutOfMemoryNamesTagAskedAndFree) {
    MemoryPool& pool = device_pool(kGpu);
    const std::size_t total = device_info(kGpu).total_bytes;
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
    Stream stream = Stream::make_compute(kGpu);
    const std::string tag = "virtual_test";
    constexpr std::size_t kArena = std::size_t{3} << 20;
    const std::size_t total = device_info(kGpu).total_bytes;
    {
        VirtualArena arena = VirtualArena::create(kGpu, kArena, tag);
        EXPECT_TRUE(emulated::owns(arena.span().data));
        const auto values = count_to(100);
        const Tensor source = Tensor::from<float>(values, {100});
        const Tensor there = Tensor::borrow(arena.span(), {100}, DType::float32, kGpu);
        copy(stream, source, there);
        EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
        {
            const int fd = arena.export_fd();
            const VirtualArena twin = VirtualArena::open(kGpu, fd, kArena);
            ::close(fd);
            EXPECT_EQ(
                Tensor::borrow(twin.span(), {100}, DType::float32, kGpu).to_host(stream).to_vector<float>(),
                values);
            EXPECT_EQ(memory_stats(tag).live_bytes, kArena);  // its owner counts it
        }
        arena.release_pages();
        EXPECT_FALSE(arena.has_pages());
        EXPECT_EQ(memory_stats(tag).live_bytes, 0U);
        EXPECT_THROW((void)arena.export_fd(), IpcRefused);
        {
            const Buffer all(total, "on_devices", device_pool(kGpu));  // what it gave back can be had
            EXPECT_THROW(arena.restore_pages(), OutOfMemory);
        }
        arena.restore_pages();
        copy(stream, source, there);
        EXPECT_EQ(there.to_host(stream).to_vector<float>(), values);
        EXPECT_THROW(VirtualArena::open(kGpu, 0, kArena << 20), IpcRefused);
    }
    EXPECT_EQ(memory_stats(tag).live_bytes, 0U);
    EXPECT_THROW(VirtualArena::create({}, 1, tag), InvalidArgument);
}

TEST(EmulatedGpu, AGraphReplaysWhatWasRecorded) {
    Stream stream = Stream::make_compute(kGpu);
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
    Stream stream = Stream::make_compute(kGpu);
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
    refused([&] { (void)ExportArena::create(kGpu, 64, "on_devices"); });
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
    Stream stream = Stream::make(kGpu, "failing");
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
