// Scheduling must be invisible: whatever runs beside a sample, however it is preempted, retracted or
// restarted, its tokens and log-probs are those it gets alone; and every page comes back.
#include "engine_adapter/embedded/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/error.h"
#include "tests/unit/engine_adapter/embedded/scheduler_rig.h"

namespace tandem::engine {
namespace {

std::vector<std::shared_ptr<Job>> jobs(std::uint64_t count, std::int64_t n = 1) {
    std::vector<std::shared_ptr<Job>> result;
    for (std::uint64_t seed = 0; seed < count; ++seed) result.push_back(job(seed, n));
    return result;
}

// The result of each job when it has the engine for itself.
std::vector<std::shared_ptr<Job>> alone(std::uint64_t count, std::int64_t n = 1) {
    auto all = jobs(count, n);
    for (const auto& one : all) {
        SchedulerRig rig;
        rig.scheduler.add(one);
        rig.run();
        EXPECT_TRUE(rig.all_pages_free());
    }
    return all;
}

TEST(Scheduler, TogetherGivesWhatAloneGives) {
    const auto expected = alone(20);
    SchedulerRig rig;
    const auto together = jobs(20);
    for (const auto& one : together) {
        rig.scheduler.add(one);
        rig.run(3);  // others are under way already
    }
    rig.run();
    for (std::size_t i = 0; i < together.size(); ++i) expect_same(*together[i], *expected[i]);
    EXPECT_TRUE(rig.all_pages_free());
    EXPECT_EQ(rig.scheduler.counts().preemptions, 0u);
}

TEST(Scheduler, PreemptionIsInvisible) {
    const auto expected = alone(20);
    SchedulerRig rig(96);  // six pages: a single long sample fills them
    const auto together = jobs(20);
    for (const auto& one : together) rig.scheduler.add(one);
    rig.run();
    for (std::size_t i = 0; i < together.size(); ++i) expect_same(*together[i], *expected[i]);
    EXPECT_GT(rig.scheduler.counts().preemptions, 0u) << "the test must really have preempted";
    EXPECT_TRUE(rig.all_pages_free());
}

TEST(Scheduler, RetractAndRestartAreInvisible) {
    const auto expected = alone(12);
    SchedulerRig rig;
    const auto together = jobs(12);
    for (const auto& one : together) rig.scheduler.add(one);
    for (int round = 0; rig.scheduler.has_work(); ++round) {
        rig.run(5);
        if (round < 10 && round % 2 == 0) {
            rig.scheduler.retract_all();
            EXPECT_TRUE(rig.all_pages_free());
        } else if (round < 10) {
            rig.scheduler.restart_all();
            EXPECT_TRUE(rig.all_pages_free());
        }
    }
    for (std::size_t i = 0; i < together.size(); ++i) expect_same(*together[i], *expected[i]);
}

TEST(Scheduler, LimitsOfRunningAndPrefillAreInvisible) {
    const auto expected = alone(12);
    for (const std::int64_t piece_tokens : {0, 4}) {
        SchedulerRig rig(
            4096,
            {.max_running = 3, .prefill_tokens = 10, .piece_tokens = piece_tokens, .eos_token_ids = {}});
        const auto together = jobs(12);
        for (const auto& one : together) rig.scheduler.add(one);
        while (rig.scheduler.has_work()) {
            rig.scheduler.step(1);
            EXPECT_LE(rig.scheduler.counts().running, 3u);
        }
        for (std::size_t i = 0; i < together.size(); ++i) expect_same(*together[i], *expected[i]);
    }
}

TEST(Scheduler, SamplesOfAPromptShareItsPrefillAndDiffer) {
    for (const std::size_t length : {15u, 16u, 17u, 32u, 40u}) {
        const auto many = job(1, 6);
        many->request.prompts[0].tokens.assign(length, 3);
        many->request.prompts[0].params = SamplingParams();
        many->request.prompts[0].params.n = 6;
        many->request.prompts[0].params.max_new_tokens = 40;
        SchedulerRig rig;
        rig.scheduler.add(many);
        rig.scheduler.step(1);
        EXPECT_EQ(rig.scheduler.counts().prefill_tokens, length);
        const auto taken = rig.cache.pool().total() - rig.cache.pool().free();
        const auto full = static_cast<std::int32_t>(length / 16);
        EXPECT_EQ(taken, full + (length % 16 == 0 ? 0 : 6)) << length;
        rig.run();
        EXPECT_TRUE(rig.all_pages_free());
        std::vector<std::vector<std::int32_t>> distinct;
        for (std::size_t i = 0; i < 6; ++i) {
            const auto single = job(1);
            single->request.prompts[0] = many->request.prompts[0];
            single->request.prompts[0].params.n = 1;
            single->request.prompts[0].first_stream = i;
            SchedulerRig own;
            own.scheduler.add(single);
            own.run();
            EXPECT_EQ(single->outputs[0].tokens, many->outputs[i].tokens);
            EXPECT_EQ(single->outputs[0].logprobs, many->outputs[i].logprobs);
            distinct.push_back(many->outputs[i].tokens);
        }
        std::sort(distinct.begin(), distinct.end());
        EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
    }
}

TEST(Scheduler, StopsAtStopTokensEndOfSequenceAndLength) {
    const auto free_run = job(1);
    free_run->request.prompts[0].params = {};
    free_run->request.prompts[0].params.max_new_tokens = 20;
    SchedulerRig rig;
    rig.scheduler.add(free_run);
    rig.run();
    const auto& tokens = free_run->outputs[0].tokens;
    ASSERT_EQ(tokens.size(), 20u);
    EXPECT_EQ(free_run->outputs[0].finish, Finish::length);
    const std::int32_t stop = tokens[7];
    const auto first =
        static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), stop) - tokens.begin());
    for (const bool as_eos : {true, false}) {
        for (const bool ignore : {true, false}) {
            SchedulerRig other(4096,
                               {.eos_token_ids = as_eos ? std::vector{stop} : std::vector<std::int32_t>{}});
            const auto again = job(1);
            again->request.prompts[0].params = free_run->request.prompts[0].params;
            if (!as_eos) again->request.prompts[0].params.stop_token_ids = {stop};
            again->request.prompts[0].params.ignore_eos = ignore;
            other.scheduler.add(again);
            other.run();
            const SampleOutput& out = again->outputs[0];
            EXPECT_EQ(out.tokens.size(), ignore ? 20 : first + 1);
            EXPECT_EQ(out.finish, ignore ? Finish::length : Finish::stop);
            EXPECT_EQ(out.matched, ignore ? -1 : stop);
        }
    }
}

TEST(Scheduler, RemovedJobsGiveTheirPagesBack) {
    SchedulerRig rig(256);
    const auto all = jobs(6, 2);
    for (const auto& one : all) rig.scheduler.add(one);
    rig.run(4);
    for (const auto& one : all) rig.scheduler.remove(*one);
    EXPECT_FALSE(rig.scheduler.has_work());
    EXPECT_TRUE(rig.all_pages_free());
    bool aborted = false;
    for (const auto& one : all) {
        for (const SampleOutput& out : one->outputs) aborted = aborted || out.finish == Finish::abort;
    }
    EXPECT_TRUE(aborted);
}

TEST(Scheduler, AFailingStepLeavesJobsThatCanBeRemoved) {
    SchedulerRig rig;
    const auto one = job(1, 3);
    rig.scheduler.add(one);
    const Tensor norm = Tensor::borrow(rig.weights.slots().back().memory, {24}, DType::float32);
    norm.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(rig.run(), Error);
    rig.scheduler.remove(*one);
    EXPECT_TRUE(rig.all_pages_free());
}

// n samples of one prompt that together are a large request.
std::shared_ptr<Job> large_job(std::int64_t n) {
    auto result = job(1, n);
    result->request.prompts[0].tokens = {1, 2, 3};
    result->request.prompts[0].params = SamplingParams();
    result->request.prompts[0].params.n = n;
    result->request.prompts[0].params.max_new_tokens = 40;
    EXPECT_FALSE(result->request.small());
    return result;
}

TEST(Scheduler, ASmallRequestDoesNotWaitForALargeOne) {
    const auto expected = alone(6);
    const auto large_alone = large_job(200);
    SchedulerRig own;
    own.scheduler.add(large_alone);
    own.run();
    // Full of samples; full of pages.
    for (const auto& [kv_tokens, max_running] : {std::pair{4096, 4}, std::pair{192, 256}}) {
        SchedulerRig rig(kv_tokens, {.max_running = max_running, .eos_token_ids = {}});
        const auto large = large_job(200);
        rig.scheduler.add(large);
        rig.run(30);
        const auto small = jobs(6);
        for (const auto& one : small) {
            rig.scheduler.add(one);
            rig.run(static_cast<int>(2 * one->request.prompts[0].params.max_new_tokens) + 2);
            EXPECT_EQ(one->unfinished, 0u) << "it waits for the large request";
        }
        EXPECT_GT(large->unfinished, 0u);
        EXPECT_GT(rig.scheduler.counts().preemptions, 0u);
        rig.run();
        for (std::size_t i = 0; i < small.size(); ++i) expect_same(*small[i], *expected[i]);
        expect_same(*large, *large_alone);
        EXPECT_TRUE(rig.all_pages_free());
    }
}

TEST(Scheduler, SmallRequestsDoNotStarveALargeOne) {
    for (const auto& [kv_tokens, max_running] : {std::pair{4096, 4}, std::pair{192, 256}}) {
        SchedulerRig rig(kv_tokens, {.max_running = max_running, .eos_token_ids = {}});
        const auto large = large_job(200);
        rig.scheduler.add(large);
        int steps = 0;
        for (std::uint64_t seed = 0; large->unfinished > 0 && steps < 20'000; ++steps) {
            while (rig.scheduler.counts().waiting < 250) rig.scheduler.add(job(seed++));
            rig.scheduler.step(1);
        }
        EXPECT_EQ(large->unfinished, 0u) << "after " << steps << " steps";
    }
}

TEST(Scheduler, NothingToGenerateIsDoneAtOnce) {
    SchedulerRig rig;
    const auto one = job(1, 2);
    one->request.prompts[0].params.max_new_tokens = 0;
    rig.scheduler.add(one);
    EXPECT_FALSE(rig.scheduler.has_work());
    EXPECT_EQ(one->unfinished, 0u);
    EXPECT_EQ(one->outputs[1].finish, Finish::length);
}

TEST(PagePool, CountsOwnersAndRefusesNonsense) {
    PagePool pool(2);
    const auto a = pool.allocate();
    pool.share(a);
    pool.release(a);
    EXPECT_EQ(pool.free(), 1);
    const auto b = pool.allocate();
    EXPECT_THROW(pool.allocate(), InvalidArgument);
    pool.release(a);
    pool.release(b);
    EXPECT_EQ(pool.free(), 2);
    EXPECT_THROW(pool.release(a), InvalidArgument);
    EXPECT_THROW(pool.share(b), InvalidArgument);
}

}  // namespace
}  // namespace tandem::engine
