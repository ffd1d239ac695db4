// Buffers, pools and their statistics, and shared arenas.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "common/device/memory.h"
#include "common/device/process_memory.h"
#include "common/device/shared_arena.h"
#include "common/error.h"

namespace tandem {
namespace {

TEST(Buffer, CountsLivePeakAndCalls) {
    const std::string tag = "memory_test_counts";
    {
        const Buffer a(100, tag);
        Buffer b(1000, tag);
        EXPECT_EQ(memory_stats(tag).live_bytes, 1100U);
        Buffer moved = std::move(b);
        EXPECT_EQ(b.data(), nullptr);  // NOLINT: what a move leaves is the point
        EXPECT_EQ(memory_stats(tag).live_bytes, 1100U);
        moved = Buffer(10, tag);
        EXPECT_EQ(memory_stats(tag).live_bytes, 110U);
        EXPECT_EQ(memory_stats(tag).peak_bytes, 1110U);
        reset_memory_peaks();
        EXPECT_EQ(memory_stats(tag).peak_bytes, 110U);
    }
    EXPECT_EQ(memory_stats(tag).live_bytes, 0U);
    EXPECT_EQ(memory_stats(tag).peak_bytes, 110U);
    EXPECT_EQ(memory_stats(tag).allocations, 3U);
    EXPECT_TRUE(all_memory_stats().contains(tag));
    EXPECT_EQ(memory_stats("memory_test_unknown").allocations, 0U);
}

TEST(Buffer, IsAlignedAndWritable) {
    for (std::size_t bytes = 0; bytes < 5000; bytes += 37) {
        const Buffer buffer(bytes, "memory_test");
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
        EXPECT_EQ(buffer.bytes(), bytes);
        if (bytes > 0) std::memset(buffer.data(), 0xab, bytes);
    }
}

TEST(CpuPool, ServesManyThreads) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            std::mt19937 random(t);
            std::vector<Buffer> mine;
            for (int i = 0; i < 500; ++i) {
                mine.emplace_back(random() % 3000 + 1, "memory_test_threads");
                std::memset(mine.back().data(), static_cast<int>(t), mine.back().bytes());
                if (mine.size() > 20) {
                    const Buffer& old = mine[random() % mine.size()];
                    for (std::size_t k = 0; k < old.bytes(); ++k) ASSERT_EQ(old.data()[k], std::byte(t));
                    mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(random() % mine.size()));
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(memory_stats("memory_test_threads").live_bytes, 0U);
}

// Against a model: blocks never overlap, stay inside, and all of it comes back.
TEST(RangePool, NeverOverlapsAndCoalesces) {
    constexpr std::size_t kBytes = 1 << 16;
    alignas(64) static std::byte memory[kBytes];
    const auto pool = make_range_pool({memory, kBytes}, "test");
    std::mt19937 random(1);
    struct Block {
        std::byte* data;
        std::size_t bytes;
        int fill;
    };
    std::vector<Block> blocks;
    std::size_t refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        if (random() % 2 == 0 || blocks.empty()) {
            const std::size_t bytes = random() % 4000;
            try {
                std::byte* data = pool->allocate(bytes);
                ASSERT_GE(data, memory);
                ASSERT_LE(data + bytes, memory + kBytes);
                ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
                blocks.push_back({data, bytes, i % 251});
                std::memset(data, i % 251, bytes);
            } catch (const Error& error) {
                EXPECT_THAT(error.what(), ::testing::HasSubstr("pool 'test' is full: asked for"));
                ++refused;
            }
        } else {
            const auto at = blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size());
            for (std::size_t k = 0; k < at->bytes; ++k)
                ASSERT_EQ(at->data[k], static_cast<std::byte>(at->fill));
            pool->release(at->data, at->bytes);
            blocks.erase(at);
        }
    }
    EXPECT_GT(refused, 0U);  // it was full at times
    for (const Block& block : blocks) pool->release(block.data, block.bytes);
    EXPECT_EQ(pool->allocate(kBytes), memory);  // one piece again
    pool->release(memory, kBytes);
}

// The sum's peak is of one moment, and says what it was made of.
TEST(MemoryPeak, IsOfTheSumNotTheSumOfPeaks) {
    reset_memory_peaks();
    const std::uint64_t before = memory_peak().bytes;
    Buffer a(1000, "peak_test_a");
    { const Buffer b(5000, "peak_test_b"); }
    const Buffer c(3000, "peak_test_c");
    EXPECT_EQ(memory_peak().bytes, before + 6000);
    EXPECT_EQ(memory_peak().by_tag.at("peak_test_a"), 1000U);
    EXPECT_EQ(memory_peak().by_tag.at("peak_test_b"), 5000U);
    EXPECT_FALSE(memory_peak().by_tag.contains("peak_test_c"));
    a = Buffer();
    reset_memory_peaks();
    EXPECT_EQ(memory_peak().bytes, before + 3000);
    EXPECT_EQ(memory_peak().by_tag.at("peak_test_c"), 3000U);
}

TEST(MemoryPeak, IsKeptByPhase) {
    reset_memory_peaks();
    const std::uint64_t before = memory_peak().bytes;
    const Buffer kept(1000, "phase_test");
    {
        const MemoryPhase phase("phase_test_one");
        const MemoryPhase inner("phase_test_inner");
        const Buffer more(2000, "phase_test");
    }
    {
        const MemoryPhase phase("phase_test_two");
        const Buffer more(500, "phase_test");
    }
    const auto peaks = memory_phase_peaks();
    EXPECT_EQ(peaks.at("phase_test_one").bytes, before + 3000);
    EXPECT_EQ(peaks.at("phase_test_two").bytes, before + 1500);
    EXPECT_EQ(peaks.at("phase_test_two").by_tag.at("phase_test"), 1500U);
    EXPECT_EQ(peaks.at("other").bytes, before + 1000);
    EXPECT_FALSE(peaks.contains("phase_test_inner"));
    EXPECT_EQ(memory_peak().bytes, before + 3000);
}

// The address sanitizer keeps what is freed to itself for a while: no pool, nothing to trim.
#if !defined(TANDEM_SANITIZE_address)
TEST(MemoryPeak, ProcessMemoryFallsWhenThePoolIsTrimmed) {
    trim_cpu_pool();
    const std::size_t bytes = std::size_t{64} << 20;
    const std::uint64_t before = process_memory().resident_bytes;
    {
        const Buffer touched(bytes, "trim_test");
        std::memset(touched.data(), 1, bytes);
    }
    EXPECT_GE(process_memory().resident_bytes, before + bytes * 9 / 10);  // kept for the next one
    EXPECT_GE(trim_cpu_pool(), bytes);
    EXPECT_LE(process_memory().resident_bytes, before + bytes / 10);
    EXPECT_GE(process_memory().peak_bytes, before);
}
#endif

TEST(SharedArena, IsSparseUntilTouched) {
    auto arena = SharedArena::create("test", std::size_t{64} << 20, "memory_test_arena");
    struct stat info {};
    ASSERT_EQ(::fstat(arena.fd(), &info), 0);
    EXPECT_EQ(info.st_blocks, 0);
    EXPECT_EQ(memory_stats("memory_test_arena").live_bytes, arena.bytes());
    arena.touch();
    ASSERT_EQ(::fstat(arena.fd(), &info), 0);
    EXPECT_EQ(static_cast<std::size_t>(info.st_blocks) * 512, arena.bytes());
    arena = SharedArena();
    EXPECT_EQ(memory_stats("memory_test_arena").live_bytes, 0U);
}

TEST(SharedArena, NobodyCanCutItShort) {
    const auto arena = SharedArena::create("test", 8192, "");
    EXPECT_EQ(::ftruncate(arena.fd(), 0), -1);
    EXPECT_EQ(::ftruncate(arena.fd(), 16384), -1);
    const int other = ::memfd_create("unsealed", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(other, 8192), 0);
    EXPECT_THROW(SharedArena::open_read_only(::dup(other), 8192), BadInput);
    EXPECT_THROW(SharedArena::open(other, 8192), BadInput);
    EXPECT_EQ(::fcntl(other, F_GETFD), -1) << "taken over, so closed";
}

TEST(SharedArena, SharesBytesWithItsOpener) {
    const auto made = SharedArena::create("test", 8192, "");
    const auto opened = SharedArena::open(::dup(made.fd()), 8192);
    std::memcpy(made.data() + 5000, "tandem", 6);
    EXPECT_EQ(std::memcmp(opened.data() + 5000, "tandem", 6), 0);
    EXPECT_EQ(memory_stats("").allocations, 0U);
}

TEST(SharedArena, OpenRefusesWhatIsTooShort) {
    const auto made = SharedArena::create("test", 4096, "");
    const int shorter = ::dup(made.fd());
    EXPECT_THROW(SharedArena::open(shorter, 8192), InvalidArgument);
    EXPECT_EQ(::fcntl(shorter, F_GETFD), -1) << "taken over, so closed";
    EXPECT_THROW(SharedArena::open(::dup(made.fd()), 0), InvalidArgument);
    EXPECT_THROW(SharedArena::open(-1, 4096), SystemError);
    EXPECT_THROW(SharedArena::create("test", 0), InvalidArgument);
}

}  // namespace
}  // namespace tandem
