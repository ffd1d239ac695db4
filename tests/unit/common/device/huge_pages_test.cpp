// Shared memory in huge pages: who asks for them, of what, and whether the system gave them.
#include "common/device/huge_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/device/memory.h"
#include "common/device/shared_arena.h"

namespace tandem {
namespace {

std::uintptr_t address(const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data);
}

// Bytes of the mapping at `data` that this process reaches by huge pages.
std::size_t in_huge_pages(const std::byte* data) {
    std::ifstream maps("/proc/self/smaps");
    const std::string begin = fmt::format("{:x}-", address(data));
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.find(begin) == 0) here = true;
        std::size_t kib = 0;
        if (here && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu", &kib) == 1) return kib << 10;
    }
    ADD_FAILURE() << "no mapping at " << begin;
    return 0;
}

// Of a page that is there whole, which is what the system call is documented for.
bool system_can() {
    const auto arena = SharedArena::create("probe", kHugePage, "");
    std::memset(arena.data(), 1, kHugePage);
    constexpr int kCollapse = 25;
    return ::madvise(arena.data(), kHugePage, kCollapse) == 0;
}

TEST(HugePages, HoldAnArenaThatIsTouchedInBothProcesses) {
    constexpr std::size_t kWhole = 4 * kHugePage, kBytes = kWhole + kHugePage / 2 + 100;
    auto arena = SharedArena::create("test", kBytes, "");
    const auto opened = SharedArena::open_read_only(::dup(arena.fd()), kBytes);
    EXPECT_EQ(address(arena.data()) % kHugePage, 0U);
    EXPECT_EQ(address(opened.data()) % kHugePage, 0U);
    arena.touch();
    const std::size_t held = in_huge_pages(arena.data());  // all, unless memory is in pieces
    EXPECT_EQ(held > 0, system_can());
    EXPECT_LE(held, kWhole);
    for (std::size_t at = 0; at < kBytes; at += 1000) ASSERT_EQ(opened.data()[at], std::byte{});
    EXPECT_EQ(in_huge_pages(opened.data()), held);
}

TEST(HugePages, KeepWhatWasWritten) {
    const auto arena = SharedArena::create("test", 3 * kHugePage, "");
    std::memset(arena.data() + 4096, 7,
                kHugePage);  // of the first page all but one small one, and one of the second
    hold_in_huge_pages(arena.span());
    for (std::size_t at = 0; at < arena.bytes(); ++at) {
        const bool written = at >= 4096 && at < 4096 + kHugePage;
        ASSERT_EQ(arena.data()[at], std::byte(written ? 7 : 0)) << at;
    }
}

TEST(HugePages, AreWholeOnes) {
    const auto arena = SharedArena::create("test", 4 * kHugePage, "");
    hold_in_huge_pages(arena.span().subspan(100, 3 * kHugePage));  // two lie in it
    hold_in_huge_pages(arena.span().subspan(3 * kHugePage + 1, kHugePage - 1));
    hold_in_huge_pages({});
    EXPECT_EQ(in_huge_pages(arena.data()) > 0, system_can());
    EXPECT_LE(in_huge_pages(arena.data()), 2 * kHugePage);
}

// The thread sanitizer would tell. The large block's first page is the small one's, too.
TEST(HugePages, AreNoneOfTheirNeighboursBytes) {
    const auto arena = SharedArena::create("test", 4 * kHugePage, "");
    const auto pool = make_range_pool(arena.span(), "test", {}, hold_in_huge_pages);
    std::byte* const small = pool->allocate(4096);
    std::thread neighbour([&] { std::memset(small, 7, 4096); });
    std::byte* const large = pool->allocate(2 * kHugePage);
    neighbour.join();
    EXPECT_EQ(std::vector<std::byte>(small, small + 4096), std::vector<std::byte>(4096, std::byte{7}));
    EXPECT_EQ(large[0], std::byte{});
}

std::vector<Span> first_uses;

TEST(HugePages, OfAPoolAreAskedForOnceAndForLargeBlocks) {
    constexpr std::size_t kPages = 64;
    const auto arena = SharedArena::create("test", kPages * kHugePage - 4096, "");
    first_uses.clear();
    const auto pool =
        make_range_pool(arena.span(), "test", {}, [](Span fresh) { first_uses.push_back(fresh); });
    std::byte* const small = pool->allocate(kHugePage - 64);
    EXPECT_TRUE(first_uses.empty());
    std::byte* const large = pool->allocate(3 * kHugePage);  // from the end of the first page into the fourth
    ASSERT_EQ(first_uses.size(), 1U);
    EXPECT_EQ(first_uses[0].data, arena.data());
    EXPECT_EQ(first_uses[0].bytes, 4 * kHugePage);
    pool->release(large, 3 * kHugePage);
    pool->release(small, kHugePage - 64);

    std::mt19937 random(3);
    struct Block {
        std::byte* data;
        std::size_t bytes;
    };
    std::vector<Block> blocks;
    for (int i = 0; i < 2000; ++i) {
        if (random() % 2 == 0 || blocks.empty()) {
            const std::size_t bytes = 1 + random() % (4 * kHugePage);
            try {
                blocks.push_back({pool->allocate(bytes), bytes});
            } catch (const OutOfMemory&) {  // the next round may be a release
            }
        } else {
            pool->release(blocks.back().data, blocks.back().bytes);
            blocks.pop_back();
        }
    }
    std::vector<int> asked(kPages);
    for (const Span& fresh : first_uses) {
        EXPECT_EQ(address(fresh.data) % kHugePage, 0U);
        ASSERT_LE(fresh.data + fresh.bytes, arena.data() + arena.bytes());
        const auto first = static_cast<std::size_t>(fresh.data - arena.data()) / kHugePage;
        for (std::size_t page = first; page * kHugePage < first * kHugePage + fresh.bytes; ++page)
            ++asked[page];
    }
    EXPECT_THAT(asked, ::testing::Each(1));  // the pool was full at times
}

}  // namespace
}  // namespace tandem
