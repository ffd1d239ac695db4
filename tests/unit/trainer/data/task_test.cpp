// The task sum4: every prompt, the split, the teacher's mistakes, the verifier; and the random streams behind
// them.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "common/error.h"
#include "trainer/data/prompt_order.h"
#include "trainer/data/sum4.h"

namespace tandem::trainer {
namespace {

TEST(Sum4, SplitsAllPromptsOnce) {
    const Sum4 task(1024, 0.6);
    EXPECT_EQ(task.train_size(), 8976);
    std::set<std::string> seen;
    for (std::int64_t i = 0; i < task.held_out_size(); ++i) seen.insert(task.text(task.held_out_prompt(i)));
    for (std::int64_t i = 0; i < task.train_size(); ++i) seen.insert(task.text(task.train_prompt(i)));
    EXPECT_EQ(seen.size(), 10000u);
    EXPECT_EQ(seen.count("9+0+3+7="), 1u);
    EXPECT_THROW(Sum4(10001, 0), InvalidArgument);
}

TEST(Sum4, TheSplitIsFixed) {
    const Sum4 task(1024, 0.6);
    const Sum4 again(1024, 0.0);
    for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(task.held_out_prompt(i), again.held_out_prompt(i));
    // Mixed, not the first 1024 numbers.
    std::set<std::int32_t> leading;
    for (std::int64_t i = 0; i < 100; ++i) leading.insert(task.held_out_prompt(i)[0]);
    EXPECT_EQ(leading.size(), 10u);
}

// The oracle: arithmetic on the text.
std::string answer_text(const std::string& prompt, bool drop_tens) {
    const int sum = (prompt[0] - '0') + (prompt[2] - '0') + (prompt[4] - '0') + (prompt[6] - '0');
    return std::to_string(drop_tens ? sum % 10 : sum) + ".";
}

TEST(Sum4, RewardsExactlyTheSum) {
    const Sum4 task(0, 0);
    for (std::int64_t i = 0; i < task.train_size(); ++i) {
        const Tokens prompt = task.train_prompt(i);
        const std::string right = answer_text(task.text(prompt), false);
        for (int guess = 0; guess < 100; ++guess) {
            Tokens completion;
            for (const char c : std::to_string(guess)) completion.push_back(c - '0');
            completion.push_back(Sum4::kEos);
            ASSERT_EQ(task.reward(prompt, completion), task.text(completion) == right ? 1.0 : 0.0)
                << task.text(prompt) << task.text(completion);
        }
    }
}

TEST(Sum4, TheFirstEosEndsTheAnswer) {
    const Sum4 task(0, 0);
    const Tokens prompt{1, 10, 1, 10, 1, 10, 1, 11};  // 4
    EXPECT_EQ(task.reward(prompt, Tokens{4, 12}), 1.0);
    EXPECT_EQ(task.reward(prompt, Tokens{4, 12, 7}), 1.0);
    EXPECT_EQ(task.reward(prompt, Tokens{4}), 0.0);
    EXPECT_EQ(task.reward(prompt, Tokens{4, 4, 12}), 0.0);
    EXPECT_EQ(task.reward(prompt, Tokens{0, 4, 12}), 0.0);  // no padding
    EXPECT_EQ(task.reward(prompt, Tokens{12, 4, 12}), 0.0);
    EXPECT_EQ(task.reward(prompt, Tokens{}), 0.0);
}

TEST(Sum4, TheTeacherDropsTheTensAsOftenAsAsked) {
    const Sum4 task(0, 0.6);
    Random random(5, Purpose::sft);
    int wrong = 0, both = 0;
    for (std::int64_t i = 0; i < task.train_size(); ++i) {
        const Tokens prompt = task.train_prompt(i);
        const std::string text = task.text(task.teach(prompt, random));
        const std::string right = answer_text(task.text(prompt), false);
        const std::string dropped = answer_text(task.text(prompt), true);
        ASSERT_TRUE(text == right || text == dropped) << text;
        both += right == dropped ? 1 : 0;
        wrong += text != right ? 1 : 0;
    }
    EXPECT_EQ(both, 715);  // sums below ten
    EXPECT_NEAR(wrong / (10000.0 - both), 0.6, 0.02);

    const Sum4 honest(0, 0.0);
    for (std::int64_t i = 0; i < 1000; ++i) {
        const Tokens prompt = honest.train_prompt(i);
        EXPECT_EQ(honest.reward(prompt, honest.teach(prompt, random)), 1.0);
    }
}

TEST(Random, AStreamIsNamedByItsSeedPurposeAndStep) {
    const auto first = [](Random random) { return random.bits(); };
    std::set<std::uint64_t> different;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        for (std::uint64_t step = 0; step < 10; ++step) {
            different.insert(first(Random(seed, Purpose::sft, step)));
            different.insert(first(Random(seed, Purpose::rollout_seeds, step)));
        }
    }
    EXPECT_EQ(different.size(), 200u);
    EXPECT_EQ(first(Random(3, Purpose::sft, 4)), first(Random(3, Purpose::sft, 4)));
}

TEST(Random, BelowIsEvenAndPermutationsAreWhole) {
    Random random(1, Purpose::halves);
    std::vector<int> count(7);
    for (int i = 0; i < 70000; ++i) ++count[static_cast<std::size_t>(random.below(7))];
    for (const int n : count) EXPECT_NEAR(n, 10000, 500);
    double mean = 0;
    for (int i = 0; i < 10000; ++i) mean += random.uniform() / 10000;
    EXPECT_NEAR(mean, 0.5, 0.02);
    auto order = random.permutation(1000);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<std::int64_t>(i));
}

TEST(Task, DrawsFromTheTrainSetOnly) {
    const Sum4 task(9999, 0);
    PromptOrder order(task, 0);
    Random random(0, Purpose::rollout_prompts);
    EXPECT_THAT(order.take(3, 20, random), testing::Each(0));
}

}  // namespace
}  // namespace tandem::trainer
