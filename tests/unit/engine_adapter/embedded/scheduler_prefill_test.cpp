// Prompts in pieces: nobody waits for a long one, half a prompt can be given up at any time, and none of it
// shows in what is generated. Steps are counted; no clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "engine_adapter/embedded/prefill_budget.h"
#include "tests/unit/engine_adapter/embedded/scheduler_rig.h"

namespace tandem::engine {
namespace {

constexpr std::int64_t kPiece = 32;

SchedulerOptions options_in_pieces() {
    return {.piece_tokens = kPiece, .eos_token_ids = {}};
}

std::shared_ptr<Job> prompt_job(std::size_t length, std::int64_t max_new_tokens, std::uint64_t seed,
                                std::int64_t n = 1) {
    auto result = job(seed, n);
    Prompt& prompt = result->request.prompts[0];
    std::mt19937_64 random(seed);
    prompt.tokens.clear();
    for (std::size_t i = 0; i < length; ++i)
        prompt.tokens.push_back(static_cast<std::int32_t>(random() % 40));
    prompt.params = {};
    prompt.params.n = n;
    prompt.params.max_new_tokens = max_new_tokens;
    return result;
}

// With the engine for itself, every prompt in one pass.
std::shared_ptr<Job> in_one_pass(const Job& like) {
    auto result = std::make_shared<Job>();
    result->request = like.request;
    result->seeds = like.seeds;
    SchedulerRig rig(8192, {.piece_tokens = 1 << 20, .eos_token_ids = {}});
    rig.scheduler.add(result);
    rig.scheduler.step(1);
    EXPECT_FALSE(result->outputs.back().tokens.empty());
    rig.run();
    return result;
}

TEST(PrefillInPieces, ASmallRequestDoesNotWaitForALongPrompt) {
    SchedulerRig rig(8192, options_in_pieces());
    const auto large = prompt_job(3000, 3, 1);
    rig.scheduler.add(large);
    rig.run(3);
    for (std::uint64_t seed = 2; seed < 22; ++seed) {
        const auto small = prompt_job(5, 1, seed);
        rig.scheduler.add(small);
        rig.run(2);  // at most one piece of the long prompt goes before
        EXPECT_EQ(small->unfinished, 0u) << "request " << seed;
        expect_same(*small, *in_one_pass(*small));
    }
    EXPECT_GE(rig.scheduler.counts().prefill_tokens, 20u * 16) << "the long prompt goes on meanwhile";
    EXPECT_TRUE(large->outputs[0].tokens.empty());
    rig.run();
    expect_same(*large, *in_one_pass(*large));
    EXPECT_TRUE(rig.all_pages_free());
}

TEST(PrefillInPieces, DecodeGoesOnBesideALongPrompt) {
    SchedulerRig rig(8192, options_in_pieces());
    const auto other = prompt_job(5, 50, 1);
    rig.scheduler.add(other);
    rig.run(1);
    const auto large = prompt_job(2000, 3, 2);
    rig.scheduler.add(large);
    for (int i = 0; i < 20; ++i) {
        const std::size_t tokens = other->outputs[0].tokens.size();
        const auto prefilled = rig.scheduler.counts().prefill_tokens;
        rig.run(2);
        EXPECT_EQ(other->outputs[0].tokens.size(), tokens + 1);
        EXPECT_GT(rig.scheduler.counts().prefill_tokens, prefilled);
    }
    rig.run();
    expect_same(*large, *in_one_pass(*large));
    expect_same(*other, *in_one_pass(*other));
}

// Its answer is sent as a whole: a token between two of its prompts would take a step that the others lack.
TEST(PrefillInPieces, DecodeBeginsWhenAllPromptsOfARequestAreThrough) {
    constexpr std::size_t kPrompts = 6;
    constexpr std::int64_t kNew = 9;
    const auto several = prompt_job(static_cast<std::size_t>(kPiece), kNew, 1);
    several->request.prompts.resize(kPrompts, several->request.prompts[0]);
    several->seeds.resize(kPrompts, 1);
    for (std::size_t p = 0; p < kPrompts; ++p)
        several->request.prompts[p].tokens[0] = static_cast<std::int32_t>(p);
    SchedulerRig rig(8192, options_in_pieces());
    rig.scheduler.add(several);
    rig.run(kPrompts + kNew - 1);
    EXPECT_EQ(several->unfinished, 0u);
    EXPECT_EQ(rig.scheduler.counts().decode_tokens, kPrompts * (kNew - 1));

    // Somebody else's tokens still come between them.
    const auto other = prompt_job(5, 50, 2);
    rig.scheduler.add(other);
    rig.run(1);
    const auto again = std::make_shared<Job>();
    again->request = several->request;
    again->seeds = several->seeds;
    rig.scheduler.add(again);
    rig.run(2 * kPrompts);
    EXPECT_EQ(other->outputs[0].tokens.size(), 1 + kPrompts);
    rig.run();
    expect_same(*again, *several);
}

// A stream of short prompts does not keep a long one waiting.
TEST(PrefillInPieces, ShortPromptsTakeTurnsWithLongOnes) {
    SchedulerRig rig(8192, options_in_pieces());
    const auto large = prompt_job(1000, 1, 1);
    rig.scheduler.add(large);
    std::uint64_t seed = 2;
    int steps = 0;
    for (; large->unfinished > 0 && steps < 1000; ++steps) {
        rig.scheduler.add(prompt_job(20, 1, seed++));
        rig.scheduler.step(1);
    }
    EXPECT_EQ(large->unfinished, 0u);
    EXPECT_LT(steps, 400);
}

TEST(PrefillInPieces, SeveralLongPromptsAtOnce) {
    SchedulerRig rig(16384, options_in_pieces());
    std::vector<std::shared_ptr<Job>> all;
    for (const std::size_t length : {3000u, 3000u, 400u, 3000u})
        all.push_back(prompt_job(length, 2, all.size() + 1));
    for (const auto& one : all) rig.scheduler.add(one);
    std::vector<std::size_t> ended;
    while (ended.size() < all.size()) {
        const auto small = prompt_job(3, 1, 77);
        rig.scheduler.add(small);
        rig.run(4);
        EXPECT_EQ(small->unfinished, 0u);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i]->unfinished == 0 && std::count(ended.begin(), ended.end(), i) == 0) ended.push_back(i);
        }
    }
    EXPECT_EQ(ended, (std::vector<std::size_t>{2, 0, 1, 3}))
        << "the shortest is soon through, the others in turn";
    for (const auto& one : all) expect_same(*one, *in_one_pass(*one));
}

TEST(PrefillInPieces, HalfAPromptIsGivenUpAtOnce) {
    const auto expected = in_one_pass(*prompt_job(2000, 4, 1, 2));
    const std::function<void(SchedulerRig&, const Job&)> ways[] = {
        [](SchedulerRig& rig, const Job& one) { rig.scheduler.remove(one); },
        [](SchedulerRig& rig, const Job&) { rig.scheduler.retract_all(); },
        [](SchedulerRig& rig, const Job&) { rig.scheduler.restart_all(); },
    };
    for (const auto& give_up : ways) {
        SchedulerRig rig(8192, options_in_pieces());
        const auto large = prompt_job(2000, 4, 1, 2);
        rig.scheduler.add(large);
        rig.run(10);
        const auto before = rig.scheduler.counts().prefill_tokens;
        EXPECT_GT(before, 0u);
        EXPECT_LT(before, 2000u);
        EXPECT_FALSE(rig.all_pages_free());
        give_up(rig, *large);
        EXPECT_TRUE(rig.all_pages_free());
        if (!rig.scheduler.has_work()) continue;
        while (rig.scheduler.has_work()) rig.scheduler.step(2);
        expect_same(*large, *expected);
        EXPECT_EQ(rig.scheduler.counts().prefill_tokens, before + 2000)
            << "it begins again, once for both samples";
        for (const SampleOutput& out : large->outputs) EXPECT_EQ(out.version, 2);
    }
}

// Who takes part in a prompt's prefill keeps it when the first of them leaves.
TEST(PrefillInPieces, ASharedPrefillOutlivesTheFirstOfItsSamples) {
    for (const std::size_t length : {1000u, 1008u}) {  // with a part of a page, and without
        SchedulerRig rig(8192, options_in_pieces());
        const auto first = prompt_job(length, 4, 1), second = prompt_job(length, 4, 1, 2);
        rig.scheduler.add(first);
        rig.scheduler.add(second);
        rig.run(10);
        const auto before = rig.scheduler.counts().prefill_tokens;
        rig.scheduler.remove(*first);
        rig.run();
        expect_same(*second, *in_one_pass(*second));
        EXPECT_GT(before, 0u);
        EXPECT_EQ(rig.scheduler.counts().prefill_tokens, length);
        EXPECT_TRUE(rig.all_pages_free());
    }
}

// Long and short prompts, added, removed, retracted and preempted at random.
TEST(PrefillInPieces, WhateverHappensIsInvisible) {
    for (std::uint64_t round = 0; round < 6; ++round) {
        std::mt19937_64 random(round);
        SchedulerRig rig(round % 2 == 0 ? 1024 : 8192,
                         {.max_running = 6,
                          .piece_tokens = 16 + 16 * static_cast<std::int64_t>(round % 3),
                          .eos_token_ids = {}});
        std::vector<std::shared_ptr<Job>> all;
        for (std::uint64_t i = 0; i < 24 || rig.scheduler.has_work(); ++i) {
            if (i < 24) {
                const std::size_t length = 1 + random() % (i % 3 == 0 ? 500 : 50);
                all.push_back(prompt_job(length, 1 + static_cast<std::int64_t>(random() % 20), i % 7,
                                         1 + static_cast<std::int64_t>(i % 2)));
                rig.scheduler.add(all.back());
            }
            rig.run(static_cast<int>(random() % 20));
            if (i >= 40) continue;
            if (random() % 5 == 0) rig.scheduler.retract_all();
            if (random() % 7 == 0) rig.scheduler.restart_all();
            if (random() % 6 == 0) rig.scheduler.remove(*all[random() % all.size()]);
        }
        for (const auto& one : all) {
            const bool aborted = std::any_of(one->outputs.begin(), one->outputs.end(),
                                             [](const auto& out) { return out.finish == Finish::abort; });
            if (!aborted) expect_same(*one, *in_one_pass(*one));
        }
        EXPECT_TRUE(rig.all_pages_free());
    }
}

TEST(PrefillBudget, PiecesGetShorterAlongAPromptAndEndWithPages) {
    const PrefillBudget budget(tiny_config(), 16, 4096, 512);
    EXPECT_EQ(budget.tokens(0, 10'000, budget.operations()), 480);
    EXPECT_EQ(budget.tokens(0, 100, budget.operations()), 100) << "all that is left";
    std::int64_t last = 512;
    for (std::int64_t begin = 0; begin < 100'000;) {
        const std::int64_t count = budget.tokens(begin, 200'000 - begin, budget.operations());
        EXPECT_EQ((begin + count) % 16, 0);
        EXPECT_TRUE(count < 48 || count % 48 == 0) << "as attention takes them";
        EXPECT_LE(count, last);
        EXPECT_TRUE(count == 16 || budget.cost(begin, count) <= budget.operations());
        begin += count;
        last = count;
    }
    EXPECT_EQ(budget.tokens(200'000, 5'000, 1), 16) << "never nothing";
    EXPECT_EQ(budget.tokens(8, 5'000, 1), 8);
    EXPECT_EQ(budget.tokens(0, 100'000, 1e30), 4080) << "activations take memory";
}

TEST(PrefillBudget, FollowsTheTimeThatPassesTake) {
    PrefillBudget budget(tiny_config(), 16, 1 << 20, 0);
    const double least = budget.cost(0, PrefillBudget::kFewestTokens);
    EXPECT_EQ(budget.operations(), least) << "before any is known";
    budget.took(1000 * least, 1);
    EXPECT_NEAR(budget.operations(), 1000 * least * PrefillBudget::kPassSeconds, least);
    for (int i = 0; i < 20; ++i) budget.took(2000 * least, 1);
    EXPECT_NEAR(budget.operations(), 2000 * least * PrefillBudget::kPassSeconds, least);
    budget.took(least / 100, 1);
    EXPECT_NEAR(budget.operations(), 2000 * least * PrefillBudget::kPassSeconds, least)
        << "too few tokens to tell";
    for (int i = 0; i < 50; ++i) budget.took(least, 1);
    EXPECT_EQ(budget.operations(), least) << "a large model: no less than what reads its weights well";
}

}  // namespace
}  // namespace tandem::engine
