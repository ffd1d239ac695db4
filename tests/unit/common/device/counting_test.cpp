// Threads that only count: what they take is counted and is not there, and nobody else notices.
#include "common/device/counting.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <span>
#include <vector>

#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/device/process_memory.h"
#include "common/device/stream.h"
#include "common/device/tier.h"
#include "common/device/virtual_arena.h"
#include "common/error.h"
#include "common/trace.h"

namespace tandem {
namespace {

constexpr std::size_t kGib = std::size_t{1} << 30;
constexpr Device kCountedGpu{DeviceType::cuda, 0};

TEST(Counting, MemoryIsCountedAndIsNotThere) {
    const ProcessMemory before = process_memory();
    run_counting([] {
        {
            const MemoryPhase phase("large");
            const Buffer a(60 * kGib, "a");
            const Buffer b(40 * kGib, "b", device_pool(kCountedGpu));
            EXPECT_TRUE(b.device() == kCountedGpu);
        }
        const Buffer again(10 * kGib, "a");
        EXPECT_EQ(memory_stats("a").live_bytes, 10 * kGib);
        EXPECT_EQ(memory_stats("a").peak_bytes, 60 * kGib);
        const MemoryPeak peak = memory_phase_peaks().at("large");
        EXPECT_EQ(peak.bytes, 100 * kGib);
        EXPECT_EQ(peak.by_tag.at("b"), 40 * kGib);
    });
    EXPECT_LT(process_memory().resident_bytes, before.resident_bytes + (std::size_t{16} << 20));
}

TEST(Counting, StatisticsAreTheThreadsOwn) {
    const Buffer outside(1000, "counting_test");
    reset_memory_peaks();
    run_counting([] {
        EXPECT_EQ(memory_peak().bytes, 0u);
        EXPECT_EQ(memory_stats("counting_test").live_bytes, 0u);
        const Buffer inside(5000, "counting_test");
        EXPECT_EQ(memory_stats("counting_test").live_bytes, 5000u);
    });
    EXPECT_EQ(memory_stats("counting_test").live_bytes, 1000u);
    EXPECT_EQ(memory_stats("counting_test").peak_bytes, 1000u);
    EXPECT_FALSE(only_counts());
}

// In memory that the host wrote to before, too.
TEST(Counting, ResultsOfTheHostReadAsZeros) {
    run_counting([] {
        for (int i = 0; i < 3; ++i) {
            Buffer results(1024, "results");
            const std::span<unsigned char> values(reinterpret_cast<unsigned char*>(results.data()), 1024);
            EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 0);
            std::fill(values.begin(), values.end(), 255);
        }
    });
}

TEST(Counting, StreamsDropTheirWork) {
    run_counting([] {
        bool done = false;
        std::vector<std::byte> from(10, std::byte{1}), to(10);
        for (const Device device : {Device{}, kCountedGpu}) {
            Stream compute = Stream::make_compute(device);
            EXPECT_TRUE(compute.device() == device);
            EXPECT_EQ(compute.is_inline(), device == Device{});
            compute.enqueue([&] { done = true; });
            copy(compute, {from.data(), 10}, {to.data(), 10});
            compute.synchronize();
        }
        EXPECT_FALSE(done);
        EXPECT_EQ(to, std::vector<std::byte>(10));
    });
}

TEST(Counting, WorkBesideTheComputationLagsByOne) {
    run_counting([] {
        Stream compute = Stream::make_compute({}), beside = Stream::make({}, "beside");
        EXPECT_EQ(compute.record().poll(), Poll::done);
        const Event first = beside.record();
        EXPECT_EQ(first.poll(), Poll::pending);
        const Event second = beside.record();
        EXPECT_EQ(first.poll(), Poll::done);
        EXPECT_EQ(second.poll(), Poll::pending);
        compute.wait(second);
        EXPECT_EQ(second.poll(), Poll::done);
        const Event third = beside.record();
        beside.synchronize();
        EXPECT_EQ(third.poll(), Poll::done);
    });
}

TEST(Counting, OffloadedStateTakesNoRoomAnywhere) {
    run_counting([] {
        const auto file = make_file_tier("/nowhere", 4096 * kGib);
        EXPECT_EQ(file->bytes(), 4096 * kGib);
        const Buffer part(kGib, "part");
        file->write(0, ConstSpan(part.span()));
        file->read(kGib, part.span());
        const auto pinned = make_pinned_tier(50 * kGib, "");
        EXPECT_EQ(pinned->bytes(), 50 * kGib);
        {
            const ReleasedPages released(part.span(), "part");
            EXPECT_EQ(memory_stats("part").live_bytes, 0u);
        }
        EXPECT_EQ(memory_stats("part").live_bytes, kGib);
    });
    EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

TEST(Counting, PagesOfAGpuComeAndGo) {
    run_counting([] {
        VirtualArena arena = VirtualArena::create(kCountedGpu, 8 * kGib, "arena", /*pages=*/false);
        EXPECT_EQ(memory_stats("arena").live_bytes, 0u);
        const std::byte* address = arena.span().data;
        arena.restore_pages();
        EXPECT_EQ(memory_stats("arena").live_bytes, 8 * kGib);
        arena.release_pages();
        EXPECT_EQ(arena.span().data, address);
        EXPECT_EQ(memory_stats("arena").live_bytes, 0u);
    });
}

TEST(Counting, ItsGpuIsOfNoOtherThread) {
    const std::size_t there = available_devices().size();
    run_counting([] { EXPECT_EQ(available_devices().size(), 2u); });
    EXPECT_EQ(available_devices().size(), there);
}

TEST(Counting, ScopesLeaveNoTrace) {
    trace::enable("counting_test", 0);
    run_counting([] { const trace::Scope scope("inside", "test"); });
    { const trace::Scope scope("outside", "test"); }
    const std::string events = trace::take_json();
    EXPECT_EQ(events.find("inside"), std::string::npos);
    EXPECT_NE(events.find("outside"), std::string::npos);
}

TEST(Counting, WhatTheBodyThrowsArrives) {
    EXPECT_THROW(run_counting([] { throw BadInput("so"); }), BadInput);
    EXPECT_FALSE(only_counts());
    EXPECT_THROW(run_counting([] { run_counting([] {}); }), InvalidArgument);
}

}  // namespace
}  // namespace tandem
