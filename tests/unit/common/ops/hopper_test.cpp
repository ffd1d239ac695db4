// The instructions of common/ops/cuda/hopper.cuh as the host does them. Compiled like the kernels, with
// instrumentation.
#include "common/ops/cuda/hopper.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/error.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernels_on_host_counts.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWarps = 4, kBlock = 32 * kWarps;

template <typename Kernel>
std::string said(const Kernel& kernel, std::size_t shared_bytes = 0) {
    try {
        fibers::run_blocks(2, kBlock, shared_bytes, kernel);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
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

}  // namespace
}  // namespace tandem::ops::on_host
