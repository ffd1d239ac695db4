// Jobs on threads: each once, on its core where it has one, and what a job throws comes out when all have stopped.
#include "engine_adapter/receiver/worker_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "common/cores.h"

namespace tandem::engine {
namespace {

constexpr std::size_t kJobs = 37;

std::vector<int> run_on(WorkerPool& pool, const std::vector<int>& cores) {
    std::vector<std::atomic<int>> runs(kJobs);
    std::vector<int> on(kJobs, -1);
    const auto core = [&](std::size_t i) { return cores[i % cores.size()]; };
    pool.run_on(core, kJobs, [&](std::size_t i) {
        ++runs[i];
        on[i] = ::sched_getcpu();
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    return on;
}

TEST(WorkerPool, RunsEachJobOnItsCore) {
    const std::vector<int> usable = usable_cores();
    WorkerPool pool(static_cast<int>(usable.size()));
    for (int again = 0; again < 3; ++again) {
        const std::vector<int> on = run_on(pool, usable);
        for (std::size_t i = 0; i < kJobs; ++i) EXPECT_EQ(on[i], usable[i % usable.size()]) << i;
    }
}

// The next jobs come while a thread still looks for them, as it stops to, and when it sleeps.
TEST(WorkerPool, TakesJobsHoweverLateTheyCome) {
    const std::vector<int> usable = usable_cores();
    WorkerPool pool(static_cast<int>(usable.size()));
    std::mt19937 generator(7);
    std::size_t done = 0;
    for (std::size_t again = 0; again < 400; ++again) {
        std::atomic<std::size_t> runs{0};
        pool.run_on([&](std::size_t i) { return usable[i % usable.size()]; }, kJobs,
                    [&](std::size_t) { ++runs; });
        done += runs;
        if (again % 4 != 0) std::this_thread::sleep_for(std::chrono::microseconds(generator() % 1000));
    }
    EXPECT_EQ(done, 400 * kJobs);
}

TEST(WorkerPool, RunsWhatHasNoUsableCoreElsewhere) {
    for (const std::vector<int>& cores : {std::vector{100'000}, {-5, 3}, {0, 1, 2, 3, 4, 5}}) {
        for (const int threads : {1, 2, 4}) {
            WorkerPool pool(threads);
            run_on(pool, cores);
            run_on(pool, {0});
        }
    }
}

TEST(WorkerPool, ThrowsWhatAJobThrowsAndGoesOn) {
    WorkerPool pool(2);
    for (const bool by_core : {false, true}) {
        const auto fails = [&](std::size_t i) {
            if (i == 5) throw std::runtime_error("job 5");
        };
        const auto run = [&](const auto& job) {
            by_core ? pool.run_on([](std::size_t) { return 0; }, kJobs, job) : pool.run(kJobs, job);
        };
        EXPECT_THROW(run(fails), std::runtime_error);
        EXPECT_NO_THROW(run([](std::size_t) {}));
    }
}

TEST(OnCore, StaysAndGoesBack) {
    const std::vector<int> before = usable_cores();
    ASSERT_FALSE(before.empty());
    for (const int core : before) {
        const OnCore stay(core);
        EXPECT_EQ(usable_cores(), std::vector{core});
        EXPECT_EQ(::sched_getcpu(), core);
    }
    EXPECT_EQ(usable_cores(), before);
    for (const int none : {-1, 100'000}) {
        const OnCore stay(none);
        EXPECT_EQ(usable_cores(), before);
    }
}

}  // namespace
}  // namespace tandem::engine
