// The racecheck of kernels on the host finds what it should, and nothing in what is right. Compiled like the
// kernels, with instrumentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kThreads = 64;
constexpr unsigned kAll = 0xffffffffu;

template <typename Kernel>
std::string found(const Kernel& kernel, int blocks = 1, std::size_t shared_bytes = 0) {
    return test::error_of([&] { fibers::run_blocks(blocks, kThreads, shared_bytes, kernel); });
}

// Every thread writes its place in shared memory and reads that of the thread `step` further.
constexpr int kLine = __LINE__;
__global__ void neighbour(int* out, unsigned step, bool block_barrier, bool warp_barrier) {
    __shared__ int room[kThreads];
    room[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (block_barrier) __syncthreads();
    if (warp_barrier) __syncwarp();
    out[threadIdx.x] = room[threadIdx.x ^ step];
}

TEST(KernelRaces, SharedMemoryWithoutABarrier) {
    std::vector<int> out(kThreads);
    const auto run = [&](unsigned step, bool block, bool warp) {
        return found([&] { neighbour(out.data(), step, block, warp); });
    };
    const auto is_a_race = AllOf(HasSubstr("racecheck"), HasSubstr("shared memory"),
                                 HasSubstr("nothing between that orders them"));
    EXPECT_THAT(run(32, false, false), is_a_race);
    EXPECT_THAT(run(32, false, true), is_a_race);  // of another warp
    EXPECT_THAT(run(1, false, false), is_a_race);
    EXPECT_THAT(run(1, false, true), IsEmpty());
    EXPECT_THAT(run(32, true, false), IsEmpty());
    EXPECT_THAT(run(0, false, false), IsEmpty());
}

TEST(KernelRaces, NamesTheLinesOfBoth) {
    std::vector<int> out(kThreads);
    const std::string report = found([&] { neighbour(out.data(), 1, false, false); });
    EXPECT_THAT(report, HasSubstr("neighbour"));
    EXPECT_THAT(report, HasSubstr("kernel_races_test.cpp:" + std::to_string(kLine + 3)));
    EXPECT_THAT(report, HasSubstr("kernel_races_test.cpp:" + std::to_string(kLine + 6)));
}

// A room is used twice: what is read of the first use must be over before the second one writes.
__global__ void twice(int* out, bool barrier) {
    __shared__ int room;
    for (int turn = 0; turn < 2; ++turn) {
        if (threadIdx.x == 0) room = turn;
        __syncthreads();
        out[threadIdx.x] = room;
        if (barrier) __syncthreads();
    }
}

TEST(KernelRaces, ReadersThatMayBeOverwritten) {
    std::vector<int> out(kThreads);
    EXPECT_THAT(found([&] { twice(out.data(), false); }), HasSubstr("reads it"));
    EXPECT_THAT(found([&] { twice(out.data(), true); }), IsEmpty());
}

TEST(KernelRaces, TheSameValueIsNoExcuse) {
    int word = 0;
    EXPECT_THAT(found([&] { word = 1; }), HasSubstr("thread 1 writes global memory"));
}

TEST(KernelRaces, ShufflesOrderNoMemory) {
    std::vector<int> out(kThreads);
    EXPECT_THAT(found([&] {
                    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = 1;
                    __shfl_sync(kAll, 0, 0);
                    if (threadIdx.x % 32 == 1) out[threadIdx.x / 32] = 2;
                }),
                HasSubstr("global memory"));
    EXPECT_THAT(found([&] {
                    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = 1;
                    __syncwarp();
                    if (threadIdx.x % 32 == 1) out[threadIdx.x / 32] = 2;
                }),
                IsEmpty());
}

__global__ void one_word_of_two_blocks(int* word, bool own) {
    if (threadIdx.x == 0) word[own ? blockIdx.x : 0] = 1;
}

__global__ void add_in_all_blocks(unsigned* words, bool reads) {
    atomicAdd(words, 1u);
    if (reads && threadIdx.x == 5) words[1] = words[0];
}

TEST(KernelRaces, BlocksOfALaunch) {
    std::vector<int> words(8);
    EXPECT_THAT(found([&] { one_word_of_two_blocks(words.data(), false); }, 2), HasSubstr("another block"));
    EXPECT_THAT(found([&] { one_word_of_two_blocks(words.data(), true); }, 2), IsEmpty());
    EXPECT_THAT(found([&] { one_word_of_two_blocks(words.data(), false); }), IsEmpty());  // another launch
    std::vector<unsigned> sums(2);
    EXPECT_THAT(found([&] { add_in_all_blocks(sums.data(), false); }, 3), IsEmpty());
    EXPECT_EQ(sums[0], 3u * kThreads);
    EXPECT_THAT(found([&] { add_in_all_blocks(sums.data(), true); }, 3), HasSubstr("adds to it"));
    // The first block reads what the third writes: the second one's reads are no excuse.
    EXPECT_THAT(found(
                    [&] {
                        if (threadIdx.x != 0) return;
                        if (blockIdx.x == 2) {
                            words[0] = 1;
                        } else if (blockIdx.x == 0 || words[1] == 0) {
                            words[2 + blockIdx.x] = words[0];
                        }
                    },
                    3),
                HasSubstr("reads it"));
}

TEST(KernelRaces, BytesOfAWordAreApart) {
    std::vector<std::uint8_t> bytes(2 * kThreads);
    std::vector<std::uint16_t> halves(kThreads);
    EXPECT_THAT(found([&] { bytes[threadIdx.x] = 1; }), IsEmpty());
    EXPECT_THAT(found([&] { halves[threadIdx.x] = 1; }), IsEmpty());
    EXPECT_THAT(found([&] {
                    std::uint16_t two = 7;
                    __builtin_memcpy(bytes.data() + threadIdx.x, &two, 2);
                }),
                HasSubstr("writes it"));
}

// Shared memory that the block has not written: from the launch before, or of another block.
__global__ void unwritten(int* out, bool writes) {
    TANDEM_DYNAMIC_SHARED(dynamic);
    __shared__ int room;
    if (threadIdx.x == 0 && (writes || blockIdx.x == 0)) {
        room = 1;
        dynamic[3] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 1) out[blockIdx.x] = room + dynamic[3];
}

TEST(KernelRaces, SharedMemoryThatNobodyWrote) {
    std::vector<int> out(2);
    EXPECT_THAT(found([&] { unwritten(out.data(), false); }, 2, 16), HasSubstr("the block has not written"));
    EXPECT_THAT(found([&] { unwritten(out.data(), true); }, 2, 16), IsEmpty());
}

__global__ void two_barriers(int* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
        out[0] = 1;
    } else {
        __syncthreads();
        out[threadIdx.x] = 2;
    }
}

TEST(KernelRaces, ScratchThatNobodyWrote) {
    constexpr std::size_t kBytes = 3 * sizeof(int);
    auto* const scratch = reinterpret_cast<int*>(tests::guarded_allocate(kBytes));
    std::vector<int> out(1);
    fibers::races::begin_scratch(scratch, kBytes);
    const auto write = [&] {
        if (threadIdx.x == 0) scratch[0] = 1;
    };
    const auto read = [&](int at) {
        return found([&, at] {
            if (threadIdx.x == 0) out[0] = scratch[at];
        });
    };
    EXPECT_THAT(read(0), HasSubstr("which nothing has written"));
    EXPECT_THAT(found(write), IsEmpty());
    EXPECT_THAT(read(0), IsEmpty());
    EXPECT_THAT(read(1), HasSubstr("which nothing has written"));
    EXPECT_THAT(fibers::races::host_reads(scratch, 4), IsEmpty());
    EXPECT_THAT(fibers::races::host_reads(scratch, 8), HasSubstr("a copy of 8 bytes"));
    fibers::races::host_writes(scratch + 1, 4);
    EXPECT_THAT(fibers::races::host_reads(scratch, 8), IsEmpty());
    EXPECT_THAT(read(1), IsEmpty());
    EXPECT_THAT(read(2), HasSubstr("which nothing has written"));
    fibers::races::end_scratch(scratch, kBytes);
    EXPECT_THAT(read(2), IsEmpty());
    tests::guarded_free(reinterpret_cast<std::byte*>(scratch));
}

TEST(KernelRules, BarriersThatPartOfTheThreadsMeet) {
    std::vector<int> out(kThreads);
    EXPECT_THAT(found([&] { two_barriers(out.data()); }), HasSubstr("while others are at"));
    EXPECT_THAT(found([] {
                    if (threadIdx.x % 32 < 16) {
                        __syncwarp();
                    } else {
                        __shfl_xor_sync(kAll, 1, 1);
                    }
                }),
                HasSubstr("a lane of a warp"));
    EXPECT_THAT(found([] {  // lanes that have ended are not waited for
                    if (threadIdx.x % 32 < 16) return;
                    __syncwarp();
                    __syncthreads();
                }),
                IsEmpty());
}

TEST(KernelRules, ShufflesFromLanesThatHaveEnded) {
    EXPECT_THAT(found([] {
                    if (threadIdx.x % 32 >= 16) return;
                    __shfl_xor_sync(kAll, 1, 16);
                }),
                HasSubstr("from one that has ended"));
    EXPECT_THAT(found([] {
                    if (threadIdx.x % 32 >= 16) return;
                    __shfl_xor_sync(kAll, 1, 8);
                }),
                IsEmpty());
    EXPECT_THAT(found([] { __shfl_xor_sync(0xffffu, 1, 8); }), HasSubstr("mask of all lanes"));
}

// Each lane gets the sum of what all of them have, on stacks of others.
__attribute__((no_sanitize("thread"))) void add_all(const std::uint64_t* operands) {
    std::uint64_t sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += *reinterpret_cast<std::uint64_t*>(operands[lane]);
    for (int lane = 0; lane < 32; ++lane) *reinterpret_cast<std::uint64_t*>(operands[lane]) = sum;
}

__global__ void sum_of_all(std::uint64_t* sums, unsigned missing) {
    if (threadIdx.x % 32 == missing) return;
    for (int turn = 0; turn < 3; ++turn) {
        std::uint64_t mine = threadIdx.x;
        fibers::together(&mine, add_all, __builtin_return_address(0));
        sums[threadIdx.x] += mine;
    }
}

TEST(KernelRules, InstructionsOfAllLanes) {
    std::vector<std::uint64_t> sums(kThreads);
    EXPECT_THAT(found([&] { sum_of_all(sums.data(), 7); }), HasSubstr("of which some have ended"));
    EXPECT_THAT(found([&] { sum_of_all(sums.data(), 32); }), IsEmpty());
    for (unsigned i = 0; i < kThreads; ++i) EXPECT_EQ(sums[i], i < 32 ? 3u * 496u : 3u * (496u + 1024u));
}

TEST(KernelRules, ShufflesAndVotesGiveTheLanesValues) {
    std::vector<unsigned> up(kThreads), down(kThreads), votes(kThreads);
    EXPECT_THAT(found([&] {
                    const unsigned lane = threadIdx.x % 32;
                    for (int turn = 0; turn < 3; ++turn) {
                        up[threadIdx.x] = __shfl_up_sync(kAll, lane, 1u);
                        down[threadIdx.x] = __shfl_down_sync(kAll, lane, 2u);
                        votes[threadIdx.x] = __ballot_sync(kAll, lane % 4 == 1);
                    }
                }),
                IsEmpty());
    for (unsigned i = 0; i < kThreads; ++i) {
        const unsigned lane = i % 32;
        EXPECT_EQ(up[i], lane == 0 ? 0 : lane - 1);
        EXPECT_EQ(down[i], lane < 30 ? lane + 2 : lane);
        EXPECT_EQ(votes[i], 0x22222222u);
    }
}

}  // namespace
}  // namespace tandem
