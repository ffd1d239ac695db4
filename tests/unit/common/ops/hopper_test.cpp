// The instructions of common/ops/cuda/hopper.cuh as the host does them. Compiled like the kernels, with
// instrumentation.
#include "common/ops/cuda/hopper.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWarps = 4, kBlock = 32 * kWarps;

template <typename Kernel>
std::string said(const Kernel& kernel, std::size_t shared_bytes = 0) {
    return test::error_of([&] { fibers::run_blocks(2, kBlock, shared_bytes, kernel); });
}

// --- named barriers ---

// Each of `readers` threads reads what a thread of `writers`, before it, has written.
__global__ void hand_over(int* out, unsigned readers, unsigned writers, bool barrier, bool waits) {
    TANDEM_DYNAMIC_SHARED(memory);
    auto* const room = reinterpret_cast<int*>(memory);
    if (threadIdx.x < writers) {
        room[threadIdx.x] = static_cast<int>(threadIdx.x);
        if (barrier) arrive_at(1, readers + writers);
    } else if (threadIdx.x < writers + readers) {
        if (barrier && waits) meet(1, readers + writers);
        if (barrier && !waits) arrive_at(1, readers + writers);
        out[threadIdx.x] = room[threadIdx.x - writers];
    }
}

TEST(NamedBarriers, OrderThoseWhoMeet) {
    std::vector<int> out(kBlock);
    const auto run = [&](unsigned readers, unsigned writers, bool barrier, bool waits) {
        return said(
            [&] {
                if (blockIdx.x == 0) hand_over(out.data(), readers, writers, barrier, waits);
            },
            kBlock * 4);
    };
    EXPECT_THAT(run(32, 64, true, true), IsEmpty());
    for (int i = 64; i < 96; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], i - 64);
    EXPECT_THAT(run(64, 64, true, true), IsEmpty());
    EXPECT_THAT(run(64, 64, false, true), HasSubstr("nothing between that orders them"));
    EXPECT_THAT(run(64, 64, true, false), HasSubstr("nothing between that orders them"));
}

TEST(NamedBarriers, OrderNobodyElse) {
    std::vector<int> out(kBlock);
    EXPECT_THAT(said(
                    [&] {
                        TANDEM_DYNAMIC_SHARED(memory);
                        auto* const room = reinterpret_cast<int*>(memory);
                        if (threadIdx.x < 64) {
                            if (threadIdx.x == 0) *room = 1;
                            meet(1, 64);
                        } else {
                            meet(2, 64);
                            out[threadIdx.x] = *room;
                        }
                    },
                    4),
                HasSubstr("nothing between that orders them"));
}

TEST(NamedBarriers, HaveRules) {
    EXPECT_THAT(said([] { meet(0, kBlock); }), HasSubstr("named barriers are 1 to 15"));
    EXPECT_THAT(said([] { meet(1, 48); }), HasSubstr("not whole warps"));
    EXPECT_THAT(said([] { meet(1, threadIdx.x < 32 ? 64 : 96); }), HasSubstr("while others say"));
    EXPECT_THAT(said([] {
                    if (threadIdx.x < 64) meet(3, 96);
                }),
                AllOf(HasSubstr("never fill"), HasSubstr("thread 0 waits for barrier 3 of 96 threads"),
                      HasSubstr("hopper_test.cpp")));
    fibers::take_counts();
    EXPECT_THAT(said([] {
                    if (threadIdx.x < 32) arrive_at(2, 64);
                    meet(1, kBlock);
                }),
                IsEmpty());
    EXPECT_EQ(fibers::take_counts().arrivals_left, 2 * 32);  // of two blocks
}

// --- mbarriers ---

// A producer fills stages with numbers, consumers sum them up; one lane a warp arrives for the stage being free.
struct Ring {
    bool syncwarp = true, waits_for_free = true, flips_full = false;
    unsigned consumers = kWarps - 1;  // arrivals that free a stage
};
__global__ void ring(int* out, int tiles, Ring how) {
    TANDEM_DYNAMIC_SHARED(memory);
    constexpr int kStages = 2, kNumbers = 32;
    auto* const stages = reinterpret_cast<int*>(memory);
    const SharedAddress full = shared_address(memory) + kStages * kNumbers * 4, empty = full + 8 * kStages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_mbarrier(full + 8 * i, 32);
            init_mbarrier(empty + 8 * i, how.consumers);
        }
        fence_mbarriers();
    }
    __syncthreads();
    int sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % kStages;
        const unsigned parity = tile / kStages % 2;
        if (threadIdx.x < 32) {
            if (how.waits_for_free) wait_for(empty + 8 * stage, parity ^ 1);
            stages[stage * kNumbers + threadIdx.x] = tile;
            arrive(full + 8 * stage);
        } else {
            wait_for(full + 8 * stage, how.flips_full ? parity ^ 1 : parity);
            for (int i = 0; i < kNumbers; ++i) sum += stages[stage * kNumbers + i];
            if (how.syncwarp) __syncwarp();
            if (threadIdx.x % 32 == 5) arrive(empty + 8 * stage);
        }
    }
    out[blockIdx.x * kBlock + threadIdx.x] = sum;
}
constexpr std::size_t kRingBytes = 2 * 32 * 4 + 4 * 8;

TEST(MBarriers, CarryAPipeline) {
    std::vector<int> out(2 * kBlock);
    const auto run = [&](const Ring& how) { return said([&] { ring(out.data(), 7, how); }, kRingBytes); };
    EXPECT_THAT(run({}), IsEmpty());
    for (int i = 32; i < kBlock; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], 32 * 21);
    // A lane arrives for others that may not be there yet.
    EXPECT_THAT(run({.syncwarp = false}),
                AllOf(HasSubstr("reads it"), HasSubstr("nothing between that orders them")));
    EXPECT_THAT(run({.waits_for_free = false}), Not(IsEmpty()));
    EXPECT_THAT(run({.flips_full = true}), Not(IsEmpty()));
    EXPECT_THAT(run({.consumers = kWarps - 2}), Not(IsEmpty()));
    EXPECT_THAT(
        run({.consumers = kWarps}),
        AllOf(HasSubstr("never fill"), HasSubstr("parity 0 of the mbarrier"), HasSubstr("lacks 1 arrivals")));
}

TEST(MBarriers, NothingOfAPipelineCanBeLeftOut) {
    using fibers::LeftOut;
    std::vector<int> out(2 * kBlock);
    const auto run = [&] { fibers::run_blocks(1, kBlock, kRingBytes, [&] { ring(out.data(), 7, {}); }); };
    const std::pair<LeftOut, std::size_t> all[] = {{LeftOut::block_barrier, 1},
                                                   {LeftOut::warp_barrier, 1},
                                                   {LeftOut::mbarrier_arrival, 2},
                                                   {LeftOut::mbarrier_wait, 2}};
    for (const auto& [what, places] : all) {
        const fibers::Survivors result = leave_out(what, run);
        EXPECT_EQ(result.places, places) << static_cast<int>(what);
        EXPECT_THAT(result.survived, IsEmpty()) << static_cast<int>(what);
    }
}

TEST(MBarriers, HaveRules) {
    const auto alone = [](const auto& does) {
        return said(
            [&] {
                TANDEM_DYNAMIC_SHARED(memory);
                if (threadIdx.x == 0) does(shared_address(memory));
            },
            32);
    };
    EXPECT_THAT(alone([](SharedAddress at) { arrive(at); }), HasSubstr("no mbarrier has been made"));
    EXPECT_THAT(alone([](SharedAddress at) { wait_for(at, 0); }), HasSubstr("no mbarrier has been made"));
    EXPECT_THAT(alone([](SharedAddress at) { init_mbarrier(at + 4, 1); }), HasSubstr("at a multiple of 8"));
    EXPECT_THAT(alone([](SharedAddress at) { init_mbarrier(at + 4096, 1); }), HasSubstr("of shared memory"));
    EXPECT_THAT(alone([](SharedAddress at) { init_mbarrier(at, 0); }), HasSubstr("for 0 arrivals"));
    EXPECT_THAT(alone([](SharedAddress at) {
                    init_mbarrier(at, 1);
                    arrive(at);
                    arrive(at);
                    wait_for(at, 1);
                    wait_for(at, 0);
                }),
                HasSubstr("parity 0"));
    EXPECT_THAT(alone([](SharedAddress at) {
                    init_mbarrier(at, 2);
                    arrive_expecting(at, 16);
                    arrive(at);
                    arrive(at);
                }),
                HasSubstr("more arrivals"));
    // Used by others before a barrier.
    EXPECT_THAT(said(
                    [] {
                        TANDEM_DYNAMIC_SHARED(memory);
                        if (blockIdx.x > 0) return;  // whose threads begin with the last one
                        if (threadIdx.x == 0) init_mbarrier(shared_address(memory), kBlock);
                        arrive(shared_address(memory));
                    },
                    8),
                HasSubstr("nothing between that orders them"));
}

// --- bulk copies ---

struct alignas(16) Sixteenths {
    std::uint32_t w[4] = {1, 2, 3, 4};
};

// A tensor [rows, heads, columns] of two-byte numbers, all different.
struct Numbers {
    std::int64_t columns, heads, rows;
    std::vector<std::uint16_t> values =
        std::vector<std::uint16_t>(static_cast<std::size_t>(columns * heads * rows + 8));
    Numbers(std::int64_t c, std::int64_t h, std::int64_t r) : columns(c), heads(h), rows(r) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i + 1);
    }
    TensorMap map(std::array<int, 3> box, int swizzle) const {
        return fibers::tensor_map(values.data(), {columns, heads, rows}, {2 * columns, 2 * columns * heads},
                                  box, swizzle);
    }
    std::uint16_t at(std::int64_t x, std::int64_t y, std::int64_t z) const {
        const bool there = x >= 0 && x < columns && y >= 0 && y < heads && z >= 0 && z < rows;
        return there ? values[static_cast<std::size_t>((z * heads + y) * columns + x)] : 0;
    }
};

unsigned char* at_1024(unsigned char* memory) {
    return memory + (1024 - reinterpret_cast<std::uintptr_t>(memory) % 1024) % 1024;
}

// A box, by one thread; all read it, swizzled over rows of box columns, when it has come.
struct BoxCopy {
    int x = 0, y = 0, z = 0;
    unsigned expects = 0, parity = 0;
    bool waits = true;
};
__global__ void read_box(const TensorMap map, std::uint16_t* out, BoxCopy how) {
    TANDEM_DYNAMIC_SHARED(memory);
    unsigned char* const tile = at_1024(memory);
    const auto bytes = static_cast<unsigned>(map.box_bytes());
    const SharedAddress arrived = shared_address(tile) + bytes;
    if (threadIdx.x == 0) init_mbarrier(arrived, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expecting(arrived, how.expects);
        copy_box(shared_address(tile), map, arrived, how.x, how.y, how.z);
    }
    if (how.waits) wait_for(arrived, how.parity);
    for (unsigned i = threadIdx.x; i < bytes / 2; i += kBlock) {
        const unsigned row_bytes = 2 * map.box[0];
        const unsigned row = 2 * i / row_bytes;
        const unsigned swizzle = map.swizzle == 0 ? 0 : row * row_bytes / 128 % (map.swizzle / 16);
        out[i] = *reinterpret_cast<const std::uint16_t*>(tile + (2 * i ^ swizzle << 4));
    }
}

TEST(BulkCopies, BringBoxes) {
    const Numbers numbers(72, 3, 20);
    for (const auto& [columns, swizzle] :
         {std::pair{64, 128}, std::pair{32, 64}, std::pair{16, 32}, std::pair{64, 0}}) {
        const TensorMap map = numbers.map({columns, 1, 16}, swizzle);
        const auto bytes = static_cast<unsigned>(map.box_bytes());
        std::vector<std::uint16_t> out(bytes / 2);
        for (const BoxCopy& where :
             {BoxCopy{0, 0, 0}, BoxCopy{64, 2, 10}, BoxCopy{0, 3, 0}, BoxCopy{-8, 1, -3}}) {
            BoxCopy how = where;
            how.expects = bytes;
            EXPECT_THAT(said(
                            [&] {
                                if (blockIdx.x == 0) read_box(map, out.data(), how);
                            },
                            bytes + 1032),
                        IsEmpty());
            for (int row = 0; row < 16; ++row) {
                for (int column = 0; column < columns; ++column) {
                    EXPECT_EQ(out[static_cast<std::size_t>(row * columns + column)],
                              numbers.at(how.x + column, how.y, how.z + row))
                        << swizzle << ' ' << row << ' ' << column;
                }
            }
        }
    }
}

TEST(BulkCopies, HaveToBeWaitedFor) {
    const Numbers numbers(64, 1, 16);
    const TensorMap map = numbers.map({64, 1, 16}, 128);
    const unsigned bytes = 64 * 16 * 2;
    std::vector<std::uint16_t> out(bytes / 2);
    const auto run = [&](const BoxCopy& how) {
        return said(
            [&] {
                if (blockIdx.x == 0) read_box(map, out.data(), how);
            },
            bytes + 1032);
    };
    EXPECT_THAT(run({.expects = bytes}), IsEmpty());
    EXPECT_THAT(run({.expects = bytes, .waits = false}), HasSubstr("on its way"));
    EXPECT_THAT(run({.expects = bytes, .parity = 1}), HasSubstr("on its way"));  // passes at once
    EXPECT_THAT(run({.expects = bytes + 16}), HasSubstr("lacks 0 arrivals and 16 bytes"));
    EXPECT_THAT(run({.expects = bytes - 16}), HasSubstr("lacks 0 arrivals and -16 bytes"));
    EXPECT_THAT(run({.expects = 0}), HasSubstr("on its way"));
}

// Only some of the threads have waited, and have told the others by no barrier.
TEST(BulkCopies, AreOrderedForThoseWhoWaited) {
    const std::vector<Sixteenths> from(4);
    const auto run = [&](bool barrier) {
        std::vector<std::uint32_t> out(kBlock);
        bool seen = false;
        return said(
            [&] {
                TANDEM_DYNAMIC_SHARED(memory);
                if (blockIdx.x > 0) return;
                const SharedAddress arrived = shared_address(memory) + 64;
                if (threadIdx.x == 0) init_mbarrier(arrived, 1);
                __syncthreads();
                if (threadIdx.x == 0) {
                    arrive_expecting(arrived, 64);
                    copy_bulk(shared_address(memory), from.data(), 64, arrived);
                }
                // The others come later, but nothing says so.
                if (threadIdx.x < 32) wait_for(arrived, 0);
                if (threadIdx.x == 0) seen = true;
                if (barrier) __syncthreads();
                if (!barrier && threadIdx.x >= 32)
                    fibers::wait_until({[&] { return seen; }, [] { return "others"; }});
                out[threadIdx.x] = reinterpret_cast<std::uint32_t*>(memory)[threadIdx.x % 16];
            },
            72);
    };
    EXPECT_THAT(run(true), IsEmpty());
    EXPECT_THAT(run(false), HasSubstr("asynchronous proxy"));
}

TEST(BulkCopies, HaveRules) {
    const Numbers numbers(64, 1, 16);
    EXPECT_THROW(numbers.map({128, 1, 16}, 128), Error);  // longer than the swizzle
    EXPECT_THROW(numbers.map({64, 1, 257}, 128), Error);
    EXPECT_THROW(numbers.map({4, 1, 16}, 128), Error);
    EXPECT_THROW(fibers::tensor_map(numbers.values.data() + 1, {64, 1, 16}, {128, 128}, {64, 1, 16}, 128),
                 Error);
    EXPECT_THROW(fibers::tensor_map(numbers.values.data(), {64, 1, 16}, {128, 2}, {64, 1, 16}, 128), Error);
    const auto alone = [](const auto& does) {
        return said(
            [&] {
                TANDEM_DYNAMIC_SHARED(memory);
                const SharedAddress tile = shared_address(at_1024(memory));
                if (threadIdx.x == 0) {
                    init_mbarrier(tile + 2048, 1);
                    does(tile, tile + 2048);
                }
            },
            4096);
    };
    const TensorMap map = numbers.map({64, 1, 16}, 128);
    EXPECT_THAT(alone([&](SharedAddress to, SharedAddress m) { copy_box(to + 64, map, m, 0, 0, 0); }),
                HasSubstr("no multiple of 128"));
    EXPECT_THAT(alone([&](SharedAddress to, SharedAddress) { copy_box(to, map, to, 0, 0, 0); }),
                HasSubstr("no mbarrier has been made"));
    EXPECT_THAT(
        alone([&](SharedAddress to, SharedAddress m) { copy_bulk(to, numbers.values.data(), 24, m); }),
        HasSubstr("the size of a bulk copy"));
    EXPECT_THAT(
        alone([&](SharedAddress to, SharedAddress m) { copy_bulk(to, numbers.values.data() + 1, 32, m); }),
        HasSubstr("source"));
    EXPECT_THAT(
        alone([&](SharedAddress to, SharedAddress m) { copy_bulk(to, numbers.values.data(), 32, m); }),
        HasSubstr("a block ends with 1 bulk copies on their way"));
}

}  // namespace
}  // namespace tandem::ops::on_host
