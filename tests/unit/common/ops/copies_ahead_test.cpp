// Copies ahead as the host does them (tests/support/kernels_on_host_copies.cpp), and kernels with one thing left out.
// Compiled like the kernels, with instrumentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/ops/cuda/instructions.cuh"
#include "tests/support/error_of.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernels_on_host_counts.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Kernel>
std::string told(const Kernel& kernel, int threads = 32, std::size_t shared_bytes = 0) {
    return test::error_of([&] { fibers::run_blocks(1, threads, shared_bytes, kernel); });
}

std::string here(int line) {
    return "copies_ahead_test.cpp:" + std::to_string(line);
}

constexpr std::uint32_t kUnwritten = 0xffffffffu;
struct alignas(16) Sixteen {
    std::uint32_t w[4];
};

std::vector<Sixteen> sources(std::size_t count) {
    std::vector<Sixteen> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i].w[0] = static_cast<std::uint32_t>(i + 1);
    return result;
}

constexpr int kCopies = __LINE__;
// Every thread copies, commits, waits; a neighbour `step` further reads after a barrier.
__global__ void copy_and_read(const Sixteen* from, std::uint32_t* out, bool waits, bool barrier,
                              unsigned step) {
    TANDEM_DYNAMIC_SHARED(memory);
    auto* const room = reinterpret_cast<Sixteen*>(memory);
    copy_ahead(shared_address(room + threadIdx.x), from + threadIdx.x);
    commit_ahead();
    if (waits) wait_ahead<0>();
    if (barrier) __syncthreads();
    out[threadIdx.x] = room[threadIdx.x ^ step].w[0];
    wait_ahead<0>();
}

TEST(CopiesAhead, ArriveWhenTheyHaveBeenWaitedFor) {
    const std::vector<Sixteen> from = sources(64);
    std::vector<std::uint32_t> out(64);
    const auto run = [&](bool waits, bool barrier, unsigned step) {
        return told([&] { copy_and_read(from.data(), out.data(), waits, barrier, step); }, 64, 64 * 16);
    };
    EXPECT_THAT(run(true, true, 0), IsEmpty());
    EXPECT_THAT(run(true, true, 33), IsEmpty());
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], (i ^ 33) + 1);
    EXPECT_THAT(run(true, false, 0), IsEmpty());
    EXPECT_THAT(run(true, false, 1), HasSubstr("nothing between that orders them"));
    EXPECT_THAT(run(false, false, 0),
                AllOf(HasSubstr("on its way"), HasSubstr(here(kCopies + 6)), HasSubstr(here(kCopies + 10))));
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], kUnwritten);
    EXPECT_THAT(run(false, true, 33), HasSubstr("on its way"));
}

// A copy a turn, two groups ahead of what is read.
template <int kPending>
__global__ void groups(const Sixteen* from, std::uint32_t* out) {
    TANDEM_DYNAMIC_SHARED(memory);
    auto* const room = reinterpret_cast<Sixteen*>(memory) + 4 * threadIdx.x;
    for (int i = 0; i < 2; ++i) {
        copy_ahead(shared_address(room + i), from + i);
        commit_ahead();
    }
    for (int i = 0; i < 4; ++i) {
        copy_ahead(shared_address(room + (i + 2) % 4), from + i + 2, i < 2);
        commit_ahead();
        wait_ahead<kPending>();
        out[4 * threadIdx.x + i] = room[i].w[0];
    }
    wait_ahead<0>();
}

TEST(CopiesAhead, ArriveInGroups) {
    const std::vector<Sixteen> from = sources(8);
    std::vector<std::uint32_t> out(4 * 32);
    EXPECT_THAT(told([&] { groups<2>(from.data(), out.data()); }, 32, 32 * 64), IsEmpty());
    for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i % 4 + 1);
    EXPECT_THAT(told([&] { groups<1>(from.data(), out.data()); }, 32, 32 * 64), IsEmpty());
    EXPECT_THAT(told([&] { groups<3>(from.data(), out.data()); }, 32, 32 * 64), HasSubstr("on its way"));
}

TEST(CopiesAhead, AreOverWhenTheThreadEnds) {
    const std::vector<Sixteen> from = sources(1);
    const auto run = [&](bool commits, bool waits) {
        return told(
            [=, &from] {
                TANDEM_DYNAMIC_SHARED(memory);
                if (threadIdx.x == 3) copy_ahead(shared_address(memory), from.data());
                if (commits) commit_ahead();
                if (waits) wait_ahead<0>();
            },
            32, 16);
    };
    EXPECT_THAT(run(true, true), IsEmpty());
    EXPECT_THAT(run(true, false), AllOf(HasSubstr("thread 3 ends"), HasSubstr("copies_ahead_test.cpp")));
    EXPECT_THAT(run(false, true), HasSubstr("thread 3 ends"));
    EXPECT_THAT(run(true, true), IsEmpty());  // nothing is left of the launch before
}

TEST(CopiesAhead, BringZerosOfWhatIsNotThere) {
    const std::vector<Sixteen> from = sources(1);
    Sixteen found{};
    EXPECT_THAT(told(
                    [&] {
                        TANDEM_DYNAMIC_SHARED(memory);
                        copy_ahead(shared_address(memory), from.data(), false);
                        commit_ahead();
                        wait_ahead<0>();
                        found = *reinterpret_cast<const Sixteen*>(memory);
                    },
                    1, 16),
                IsEmpty());
    for (const std::uint32_t word : found.w) EXPECT_EQ(word, 0u);
}

TEST(CopiesAhead, LeadFromAlignedToAlignedSharedMemory) {
    const std::vector<Sixteen> from = sources(2);
    Sixteen elsewhere;
    const auto run = [&](std::size_t to, std::size_t offset, bool outside) {
        return told(
            [=, &from, &elsewhere] {
                TANDEM_DYNAMIC_SHARED(memory);
                const SharedAddress place = outside ? shared_address(&elsewhere) : shared_address(memory);
                copy_ahead(place + to, reinterpret_cast<const char*>(from.data()) + offset);
                commit_ahead();
                wait_ahead<0>();
            },
            1, 32);
    };
    EXPECT_THAT(run(16, 16, false), IsEmpty());
    EXPECT_THAT(run(8, 0, false), HasSubstr("target"));
    EXPECT_THAT(run(0, 4, false), HasSubstr("source"));
    EXPECT_THAT(run(32, 0, false), HasSubstr("not in shared memory"));
    EXPECT_THAT(run(0, 0, true), HasSubstr("not in shared memory"));
}

// Who writes the source or the target while a copy is under way, after a barrier even.
TEST(CopiesAhead, LeaveTheirSourceAndTargetToNobodyElse) {
    const auto run = [](unsigned writes_source, unsigned copies_again, unsigned reads_before) {
        std::vector<Sixteen> from = sources(2);
        std::uint32_t seen = 0;
        return told(
            [=, &from, &seen] {
                TANDEM_DYNAMIC_SHARED(memory);
                auto* const room = reinterpret_cast<Sixteen*>(memory);
                if (threadIdx.x == 1) *room = {};
                __syncthreads();
                if (threadIdx.x == reads_before) seen = room->w[0];
                if (threadIdx.x == 1) copy_ahead(shared_address(room), from.data());
                commit_ahead();
                __syncthreads();
                if (threadIdx.x == writes_source) from[0].w[1] = 77;
                if (threadIdx.x == copies_again) {
                    copy_ahead(shared_address(room), from.data() + 1);
                    commit_ahead();
                }
                __syncthreads();
                wait_ahead<0>();
            },
            32, 16);
    };
    const unsigned nobody = 99;
    EXPECT_THAT(run(nobody, nobody, nobody), IsEmpty());
    EXPECT_THAT(run(nobody, nobody, 1), IsEmpty());
    EXPECT_THAT(run(nobody, nobody, 0), HasSubstr("reads it"));  // nothing says that this is over
    EXPECT_THAT(run(nobody, nobody, 7), HasSubstr("on its way"));
    EXPECT_THAT(run(5, nobody, nobody), HasSubstr("source of a copy has changed"));
    EXPECT_THAT(run(1, nobody, nobody), HasSubstr("source of a copy has changed"));
    EXPECT_THAT(run(nobody, 5, nobody), HasSubstr("on its way"));
    EXPECT_THAT(run(nobody, 1, nobody), HasSubstr("on its way"));
}

TEST(CopiesAhead, AreCounted) {
    const std::vector<Sixteen> from = sources(64);
    std::vector<std::uint32_t> out(64);
    fibers::take_counts();
    EXPECT_THAT(told([&] { copy_and_read(from.data(), out.data(), true, true, 0); }, 64, 64 * 16), IsEmpty());
    EXPECT_EQ(fibers::take_counts().copies, 64);
    EXPECT_EQ(fibers::take_counts().copies, 0);
}

// --- one thing left out ---

// Tiles of a pipeline of two stages, read by neighbours, summed over a warp through shared memory.
__global__ void pipeline(const Sixteen* from, std::uint32_t* out, int tiles) {
    TANDEM_DYNAMIC_SHARED(memory);
    auto* const stages = reinterpret_cast<Sixteen*>(memory);
    auto* const sums = reinterpret_cast<std::uint32_t*>(stages + 2 * 64);
    const auto send = [&](int tile) {
        if (tile < tiles)
            copy_ahead(shared_address(stages + tile % 2 * 64 + threadIdx.x), from + tile * 64 + threadIdx.x);
        commit_ahead();
    };
    send(0);
    std::uint32_t sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        send(tile + 1);
        wait_ahead<1>();
        __syncthreads();
        sum += stages[tile % 2 * 64 + (threadIdx.x ^ 63)].w[0];
        __syncthreads();
    }
    sums[threadIdx.x] = sum;
    __syncwarp();
    out[threadIdx.x] = sums[threadIdx.x ^ 1];
}

TEST(LeftOut, NothingOfAPipelineCanBe) {
    using fibers::LeftOut;
    const std::vector<Sixteen> from = sources(4 * 64);
    std::vector<std::uint32_t> out(64);
    const auto run = [&] {
        fibers::run_blocks(1, 64, 2 * 64 * 16 + 64 * 4, [&] { pipeline(from.data(), out.data(), 4); });
    };
    EXPECT_NO_THROW(run());
    const std::pair<LeftOut, std::size_t> all[] = {{LeftOut::block_barrier, 2},
                                                   {LeftOut::warp_barrier, 1},
                                                   {LeftOut::wait, 1},
                                                   {LeftOut::last_group, 1},
                                                   {LeftOut::commit, 2}};  // of its two calls
    for (const auto& [what, places] : all) {
        const fibers::Survivors result = leave_out(what, run);
        EXPECT_EQ(result.places, places) << static_cast<int>(what);
        EXPECT_THAT(result.survived, IsEmpty()) << static_cast<int>(what);
    }
    EXPECT_NO_THROW(run());
}

TEST(LeftOut, WhatNobodyNeedsSurvives) {
    const fibers::Survivors result = leave_out(fibers::LeftOut::block_barrier,
                                               [] { fibers::run_blocks(1, 32, 0, [] { __syncthreads(); }); });
    EXPECT_EQ(result.places, 1u);
    EXPECT_THAT(result.survived, ::testing::ElementsAre(HasSubstr("copies_ahead_test.cpp")));
}

}  // namespace
}  // namespace tandem::ops::on_host
