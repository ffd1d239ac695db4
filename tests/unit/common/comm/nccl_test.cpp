// The nccl backend over a table of our own: what it asks of NCCL and in which order, and what it does when
// NCCL is slow, refuses, fails later, or waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/on_gpu.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/common/comm/nccl_rig.h"

namespace tandem::comm::nccl {
namespace {

using test::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

// What NCCL cannot keep, and which test below holds what it does instead.
struct NotKept {
    const char* check;
    const char* why;
    const char* instead;
};
constexpr NotKept kNotKept[] = {
    {"calls_disagree",
     "NCCL does not compare calls, and ranks do not meet on the host before each, which is what makes it "
     "fast",
     "CallsThatDisagreeEndAtTheDeadlineWithWhatEachRankWaitsFor"},
    {"p2p_sizes_disagree", "the same: a message's size is known to its two ends only, who do not compare it",
     "CallsThatDisagreeEndAtTheDeadlineWithWhatEachRankWaitsFor"},
    {"deadline_names_the_late",
     "NCCL does not say who is missing: a deadline is followed by a liveness probe on the host, and who "
     "comes "
     "during it is not late; the check's rank comes then",
     "WhoDoesNotCallIsNamed"},
    {"p2p_deadline", "the same, for the two ends of a message", "WhoDoesNotSendIsNamed"},
    {"splits_in_any_order",
     "kernels of two groups that start in different orders on two GPUs may wait for each other for ever",
     "LaunchesFollowEachOtherOverStreamsAndGroups"},
    {"streams_interleave",
     "its calls come from two threads, in an order of their own on each rank; NCCL wants one order",
     "StreamsInterleaveInOneOrder"},
};

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kSizes = {3};
#else
const std::vector<int> kSizes = {1, 3};
#endif

std::vector<contract::Case> kept_cases() {
    std::vector<contract::Case> cases;
    for (auto& one : contract::cases(kSizes)) {
        const bool kept =
            std::none_of(std::begin(kNotKept), std::end(kNotKept),
                         [&](const NotKept& not_kept) { return one.check.name == not_kept.check; });
        if (kept) cases.push_back(one);
    }
    return cases;
}

class Contract : public Nccl, public ::testing::WithParamInterface<contract::Case> {};

TEST_P(Contract, Holds) {
    EXPECT_NO_THROW(run(GetParam().size,
                        [](const World& world) { GetParam().check.run(contract::on_gpu(world, kGpu)); }));
}

INSTANTIATE_TEST_SUITE_P(Nccl, Contract, ::testing::ValuesIn(kept_cases()),
                         [](const auto& info) { return info.param.name(); });

// An exception names a check that is there, and a test that is there.
TEST_F(Nccl, WhatItDoesNotKeepIsKnown) {
    std::set<std::string> tests;
    const auto* suite = ::testing::UnitTest::GetInstance()->current_test_suite();
    for (int i = 0; i < suite->total_test_count(); ++i) tests.insert(suite->GetTestInfo(i)->name());
    for (const NotKept& one : kNotKept) {
        EXPECT_NO_THROW(contract::check_named(one.check));
        EXPECT_TRUE(tests.count(one.instead) == 1) << one.check << ": " << one.why;
    }
}

TEST_F(Nccl, BeginsWithoutBlockingAndEndsInPeace) {
    run(2, [](const World& world) { world->split({world->rank()}, "alone"); });
    EXPECT_EQ(fake::count("init"), 4);
    EXPECT_EQ(fake::count("finalize"), 4);
    EXPECT_EQ(fake::count("destroy"), 4);
    EXPECT_EQ(fake::count("abort"), 0);
}

TEST_F(Nccl, ABatchIsOneLaunch) {
    run(1, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        const Buffer memory(4096, "test", world->memory(kGpu));
        std::vector<GatherItem> items;
        for (std::size_t i = 0; i < 5; ++i) {
            const Span part = memory.span().subspan(512 * i, 512);
            items.push_back({part, part});
        }
        world->all_gather(items, stream).wait(test::soon());
    });
    EXPECT_EQ(fake::count("group 5"), 1);
}

// NCCL answers within some ten microseconds: a thread that sleeps for them, and a sleep takes longer than it
// says, keeps the computation waiting. In one launch of several: others may have the core.
TEST_F(Nccl, ALaunchIsLookedForBeforeAnybodySleeps) {
    run(1, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        const Buffer memory(256, "test", world->memory(kGpu));
        fake::Behaviour behaviour;
        behaviour.looks_at_launch = 2;
        fake::set(behaviour);
        bool awake = false;
        for (int i = 0; i < 50 && !awake; ++i) {
            const int before = fake::count("look");
            world->broadcast(memory.span(), 0, stream).wait(test::soon());
            awake = fake::count("look") == before + 3;
        }
        EXPECT_TRUE(awake);
        fake::set({});
    });
}

TEST_F(Nccl, ARefusedInitNamesTheReason) {
    fake::Behaviour behaviour;
    behaviour.init = Result::invalid_usage;
    fake::reset(behaviour);
    EXPECT_THAT(error_of([] { run(2, [](const World&) {}); }),
                HasSubstr("init of 'world': NCCL: unhandled thing"));
}

TEST_F(Nccl, AnInitThatNeverEndsIsAborted) {
    fake::Behaviour behaviour;
    behaviour.never_ready = true;
    fake::reset(behaviour);
    const std::string error = error_of([] {
        run_threads(2, [](const World& host) {
            host->set_timeout(std::chrono::milliseconds(200));
            make_world(host, kGpu, fake::api());
        });
    });
    EXPECT_THAT(error, HasSubstr("init of 'world' with a peer: NCCL is still in progress at the deadline"));
    EXPECT_EQ(fake::count("abort"), 2);
}

TEST_F(Nccl, ARefusedCallEndsTheJob) {
    run(2, [](const World& world) {
        world->barrier();
        fake::Behaviour behaviour;
        behaviour.all_gather = Result::invalid_argument;
        if (world->rank() == 0) fake::set(behaviour);
        world->barrier();
        if (world->rank() == 1) {  // is told at its next call
            while (!world->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            EXPECT_THAT(error_of([&] { world->barrier(); }),
                        HasSubstr("all_gather on 'world': NCCL: unhandled"));
            return;
        }
        Stream stream = Stream::make(kGpu, "work");
        const Buffer memory(512, "test", device_pool(kGpu));
        const GatherItem item{memory.span().subspan(0, 256), memory.span()};
        EXPECT_THROW(world->all_gather(std::span(&item, 1), stream), CudaError);
        EXPECT_THROW(world->barrier(stream), TransportError);
    });
}

// A rank that never calls: the others' watch names it, the streams go on, the work fails.
TEST_F(Nccl, WhoDoesNotCallIsNamed) {
    const auto start = std::chrono::steady_clock::now();
    run(3, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        world->barrier(stream).wait(test::soon());
        world->barrier();
        if (world->rank() == 2) {
            while (!world->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return;
        }
        world->set_timeout(std::chrono::milliseconds(300));
        const Work work = world->barrier(stream);
        const std::string error = error_of([&] { work.wait(test::soon()); });
        EXPECT_THAT(error, HasSubstr("barrier on 'world'"));
        EXPECT_THAT(error, HasSubstr("rank 2"));
        EXPECT_THAT(error, Not(AnyOf(HasSubstr("with rank 0: not"), HasSubstr("with rank 1: not"))));
        EXPECT_EQ(work.poll(), Poll::failed);
        stream.synchronize();  // nothing hangs there any more
        EXPECT_THROW(world->barrier(stream), TransportError);
    });
    EXPECT_EQ(fake::count("abort"), 3);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

// A message that does not come: its receiver's deadline names the sender.
TEST_F(Nccl, WhoDoesNotSendIsNamed) {
    run(2, [](const World& world) {
        world->barrier();
        if (world->rank() == 1) {
            while (!world->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            EXPECT_THAT(error_of([&] { world->barrier(); }), HasSubstr("rank 1"));
            return;
        }
        world->set_timeout(std::chrono::milliseconds(200));
        Stream stream = Stream::make(kGpu, "work");
        const Buffer memory(256, "test", device_pool(kGpu));
        const P2POp op{P2POp::Kind::recv, 1, memory.span()};
        const Work work = world->p2p(std::span(&op, 1), stream);
        const std::string error = error_of([&] { work.wait(test::soon()); });
        EXPECT_THAT(error, AllOf(HasSubstr("p2p on 'world'"), HasSubstr("rank 1")));
        stream.synchronize();
    });
}

// NCCL lets both wait: the liveness probe finds every rank, each in a call of its own.
TEST_F(Nccl, CallsThatDisagreeEndAtTheDeadlineWithWhatEachRankWaitsFor) {
    run(2, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        const World other = world->split({0, 1}, "other");
        world->barrier();
        world->set_timeout(std::chrono::milliseconds(300));
        const Work work = world->rank() == 0 ? world->barrier(stream) : other->barrier(stream);
        const std::string error = error_of([&] { work.wait(test::soon()); });
        EXPECT_THAT(error, HasSubstr("rank 0 waits in barrier on 'world', rank 1 in barrier on 'other'"));
        stream.synchronize();
    });
}

TEST_F(Nccl, AnAsynchronousErrorEndsTheJob) {
    run(2, [](const World& world) {
        Stream stream = Stream::make(kGpu, "work");
        world->barrier();
        if (world->rank() == 1) {
            while (!world->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            EXPECT_THAT(error_of([&] { world->barrier(); }), HasSubstr("NCCL reports error 6"));
            return;
        }
        const Work work = world->barrier(stream);  // rank 1 will not come
        fake::Behaviour behaviour;
        behaviour.asynchronous = Result::remote_error;
        fake::set(behaviour);
        const std::string error = error_of([&] { work.wait(test::soon()); });
        EXPECT_THAT(error, HasSubstr("barrier on 'world': NCCL reports error 6: the last error's words"));
    });
}

TEST_F(Nccl, LaunchesFollowEachOtherOverStreamsAndGroups) {
    run(2, [](const World& world) {
        const World other = world->split({0, 1}, "other");
        Stream one = Stream::make(kGpu, "one");
        Stream two = Stream::make(kGpu, "two");
        const Buffer memory(256, "test", device_pool(kGpu));
        fill_zero(one, memory.span());
        Work before;
        Work last;
        for (int i = 0; i < 20; ++i) {
            before = world->all_reduce(memory.span(), DType::float32, ReduceOp::sum, one);
            last = other->all_reduce(memory.span(), DType::float32, ReduceOp::sum, two);
        }
        last.wait(test::soon());
        EXPECT_EQ(before.poll(), Poll::done);  // the last launch waited for it
        two.synchronize();
    });
}

// The contract's streams_interleave with the calls of one thread: sums of one group on one stream, gathers of
// another on a second, waits in between, all launched before any is awaited.
TEST_F(Nccl, StreamsInterleaveInOneOrder) {
    run(3, [](const World& world) {
        const World other = world->split({0, 1, 2}, "other");
        Stream sums = Stream::make(kGpu, "sums");
        Stream gathers = Stream::make(kGpu, "gathers");
        constexpr std::size_t kRounds = 25;
        constexpr std::size_t kCount = 3000;
        std::vector<Buffer> parts;
        std::vector<Buffer> wholes;
        std::vector<std::vector<float>> mine(kRounds, std::vector<float>(kCount));
        std::vector<Work> works;
        for (std::size_t round = 0; round < kRounds; ++round) {
            MemoryPool& pool = round % 2 == 0 ? world->memory(kGpu) : device_pool(kGpu);
            parts.emplace_back(kCount * 4, "test", pool);
            wholes.emplace_back(3 * kCount * 4, "test", pool);
            for (std::size_t i = 0; i < kCount; ++i)
                mine[round][i] = static_cast<float>(round + i) * static_cast<float>(world->rank() + 1);
            copy(sums, {reinterpret_cast<const std::byte*>(mine[round].data()), kCount * 4},
                 parts[round].span());
            const Work sum = other->all_reduce(parts[round].span(), DType::float32, ReduceOp::sum, sums);
            gathers.wait(sum.event());
            const GatherItem item{parts[round].span(), wholes[round].span()};
            works.push_back(world->all_gather(std::span(&item, 1), gathers));
        }
        for (const Work& work : works) work.wait(test::soon());
        std::vector<float> whole(3 * kCount);
        for (std::size_t round = 0; round < kRounds; ++round) {
            copy(gathers, wholes[round].span(),
                 {reinterpret_cast<std::byte*>(whole.data()), whole.size() * 4});
            gathers.synchronize();
            for (std::size_t i = 0; i < whole.size(); ++i)
                ASSERT_EQ(whole[i], 6 * static_cast<float>(round + i % kCount)) << "round " << round;
        }
    });
}

TEST_F(Nccl, RanksThatShareAGpuStayWithIpc) {
    run_threads(2, [](const World& world) {
        EXPECT_EQ(for_device(world, {}), world);
        EXPECT_EQ(for_device(world, kGpu), world);
        world->barrier();
        if (world->rank() == 0) ::setenv("TANDEM_COMM", "nccl", 1);
        world->barrier();
        EXPECT_THAT(error_of([&] { for_device(world, kGpu); }),
                    HasSubstr("TANDEM_COMM: 'nccl' is not possible here: an emulated GPU has none"));
        world->barrier();
        if (world->rank() == 0) ::unsetenv("TANDEM_COMM");
    });
}

TEST_F(Nccl, WithoutTheLibrarySaysWhatToDo) {
    ::setenv("TANDEM_NCCL", "/nonexistent/libnccl.so.2", 1);
    const std::string error = error_of([] { loaded(); });
    ::unsetenv("TANDEM_NCCL");
    EXPECT_THAT(error, HasSubstr("NCCL cannot be loaded: /nonexistent/libnccl.so.2"));
    EXPECT_THAT(error, HasSubstr("TANDEM_NCCL"));
}

}  // namespace
}  // namespace tandem::comm::nccl
