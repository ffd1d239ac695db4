// The rules that score a completion by its text: tables of hard cases.
#include "trainer/reward/rules.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "common/error.h"
#include "trainer/reward/number.h"

namespace tandem::trainer {
namespace {

double score(const Reward& reward, const std::string& completion, const std::string& answer) {
    const std::vector<AnsweredPrompt> one = {{"", completion, answer, false}};
    return reward.scores(one).at(0);
}

TEST(FinalNumber, ReadsHardCases) {
    const std::optional<double> none;
    const std::vector<std::pair<std::string, std::optional<double>>> table = {
        {"", none},
        {"nothing", none},
        {"42", 42},
        {"The answer is 12 apples", 12},
        {"The answer is 12.", 12},
        {"5.", 5},
        {"5,", 5},
        {".5", 0.5},
        {"0.50", 0.5},
        {"x = .25.", 0.25},
        {"-3", -3},
        {"x=-3", -3},
        {"is -3.5 degrees", -3.5},
        {"−7", -7},
        {"+7", 7},
        {"10-3", 3},
        {"f(2)-3", 3},
        {"step-3", 3},
        {"10 - 3", 3},
        {"10 -3", -3},
        {"--3", -3},
        {"$1,234.50", 1234.5},
        {"-$1,234.50", -1234.5},
        {"$-1,234.50", -1234.5},
        {"5-$3", 3},
        {"€20", 20},
        {"£1,000,000", 1e6},
        {"1,234,567", 1234567},
        {"12,34", 34},
        {"1,2345", 2345},
        {"0,123", 123},
        {"1234,567", 567},
        {"1, 2, 3", 3},
        {"3,141,59", 59},
        {"1/2", 0.5},
        {"-1/2", -0.5},
        {"3 / 4", 0.75},
        {"1 1/2", 1.5},
        {"-1 1/2 cups", -1.5},
        {"2 3/2", 1.5},
        {"1/0", 0},
        {"1/2/2024", 2024},
        {"4 / x", 4},
        {"1.5/2", 2},
        {"50%", 50},
        {"2 + 2 = 4", 4},
        {"2+2=4", 4},
        {"1e3", 1000},
        {"2.5E-2", 0.025},
        {"1e+2", 100},
        {"1e", 1},
        {"3e5x", 3e5},
        {"1e999", none},
        {"7 then 1e999", 7},
        {"12:30", 30},
        {"10^2", 2},
        {"v1.2.3", 3},
        {"It takes 3 days, then 4 more.\n#### 7", 7},
        {"#### 7\nand 8", 7},
        {"#### 1\n#### 2", 2},
        {"5 #### none", none},
        {"#### -$1,000", -1000},
        {"####-2", -2},
        {"<<3*4=12>>12 apples", 12},
        {"\\boxed{17}", 17},
        {"**9**", 9},
    };
    for (const auto& [text, expected] : table) {
        const auto number = final_number(text);
        const std::optional<double> found = number ? std::optional(number->value) : none;
        EXPECT_EQ(found.has_value(), expected.has_value()) << text << " gives " << found.value_or(NAN);
        if (found && expected) {
            EXPECT_NEAR(*found, *expected, 1e-12 * std::abs(*expected)) << text;
        }
    }
}

TEST(Numeric, ComparesWithinTheTolerance) {
    const NumericReward reward(1e-6);
    const std::vector<std::tuple<std::string, std::string, double>> table = {
        {"so 1,234 in all", "#### 1234", 1},
        {"#### 1/3", "0.33333333", 1},
        {"0.333", "1/3", 0},
        {"1000000.5", "1000000", 1},
        {"1000002", "1000000", 0},
        {"", "5", 0},
        {"I do not know", "5", 0},
        {"-5", "5", 0},
        {"5 of the 6", "5", 0},
        {"five", "5", 0},
        {"5.0000001", "5", 1},
        {"0", "-0", 1},
    };
    for (const auto& [completion, answer, expected] : table)
        EXPECT_EQ(score(reward, completion, answer), expected) << completion << " for " << answer;
    EXPECT_EQ(score(NumericReward(0.01), "0.333", "1/3"), 1);
    EXPECT_EQ(score(NumericReward(0), "0.1", "0.1"), 1);
    EXPECT_EQ(reward.complaint("#### 5"), "");
    EXPECT_THAT(reward.complaint("none"), testing::HasSubstr("holds no number"));
}

TEST(FinalNumber, ReadsBackEveryNumberThatIsWritten) {
    for (int i = -100'000; i <= 100'000; i += 37) {
        const double value = i / 100.0;
        EXPECT_EQ(final_number(fmt::format("so it is {}.", value))->value, value);
        EXPECT_EQ(final_number(fmt::format("#### {}", i))->value, i);
    }
}

TEST(Exact, ComparesWithoutTheWhiteSpace) {
    const ExactReward plain(false), folded(true);
    EXPECT_EQ(score(plain, " a \n b\t", "a b"), 1);
    EXPECT_EQ(score(plain, "ab", "a b"), 0);
    EXPECT_EQ(score(plain, "A b", "a b"), 0);
    EXPECT_EQ(score(folded, "A b", "a B"), 1);
    EXPECT_EQ(score(plain, "", "a"), 0);
    EXPECT_EQ(score(plain, "a b.", "a b"), 0);
    EXPECT_EQ(score(plain, "größe", "größe"), 1);
    EXPECT_THAT(plain.complaint(" \n"), testing::HasSubstr("is empty"));
}

TEST(Regex, ComparesWhatTheGroupCaptured) {
    const PatternReward reward("answer is\\s+(\\S+)", false);
    EXPECT_EQ(score(reward, "The answer is 12", "12"), 1);
    EXPECT_EQ(score(reward, "The answer is 11. No, the answer is  12", "12"), 1);
    EXPECT_EQ(score(reward, "The answer is 12. No, the answer is 11", "12"), 0);
    EXPECT_EQ(score(reward, "The ANSWER is 12", "12"), 0);
    EXPECT_EQ(score(PatternReward("answer is (\\w+)", true), "The ANSWER IS B", "b"), 1);
    EXPECT_EQ(score(reward, "12", "12"), 0);
    EXPECT_THAT(reward.complaint(""), testing::HasSubstr("is empty"));
    // A group that took no part in the last match holds nothing.
    EXPECT_EQ(score(PatternReward("x(1)?", false), "x1 x", "1"), 0);
}

TEST(Regex, WithoutAGroupAMatchIsEnough) {
    const PatternReward reward("^<think>.*</think>", false);
    EXPECT_EQ(score(reward, "<think>hm</think> 4", ""), 1);
    EXPECT_EQ(score(reward, "4", ""), 0);
    EXPECT_EQ(reward.complaint(""), "");
    EXPECT_EQ(score(PatternReward("ü+", false), "süüß", ""), 1);
}

TEST(Regex, EmptyMatchesAndInvalidTextEnd) {
    EXPECT_EQ(score(PatternReward("(a*)", false), "üaaü", ""), 1);  // the last match is empty
    EXPECT_EQ(score(PatternReward("(b)", false), "\xff\xfe b \xc3", "b"), 1);
    EXPECT_EQ(score(PatternReward("(b|)", false), std::string("\xc3\xb6\0b", 4), ""), 1);
}

TEST(Regex, BacktrackingIsBounded) {
    const PatternReward reward("^(a+)+$", false);
    std::string text(60, 'a');
    text.push_back('b');
    EXPECT_EQ(score(reward, text, "a"), 0);
}

TEST(MakeReward, RefusesWhatItDoesNotKnow) {
    const auto message = [](const RewardOptions& options) -> std::string {
        try {
            make_reward(options);
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "good";
    };
    RewardOptions options;
    for (const char* rule : {"exact", "numeric", "http://localhost:8000/score"}) {
        options.rule = rule;
        EXPECT_EQ(message(options), "good");
    }
    options.rule = "fuzzy";
    EXPECT_THAT(message(options), testing::HasSubstr("'fuzzy' is not exact, numeric, regex or http://"));
    options.rule = "http://:80";
    EXPECT_THAT(message(options), testing::HasSubstr("names no host"));
    options.rule = "regex";
    EXPECT_THAT(message(options), testing::HasSubstr("needs a pattern"));
    options.pattern = "a(b";
    EXPECT_THAT(message(options), testing::HasSubstr("'a(b' is not a regular expression: missing closing "
                                                     "parenthesis at offset 3"));
    options.pattern = "(?<n>a)";
    EXPECT_EQ(message(options), "good");
}

}  // namespace
}  // namespace tandem::trainer
