// Numbers of LaTeX and of plain text: tables of what MATH-like data hold, and random numbers against
// arithmetic of whole numbers.
#include "trainer/reward/number.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer/reward/rules.h"

namespace tandem::trainer {
namespace {

const std::optional<double> kNone;

void expect(const std::optional<Number>& found, const std::optional<double>& right, const std::string& text) {
    EXPECT_EQ(found.has_value(), right.has_value()) << text << " gives " << (found ? found->value : NAN);
    if (found && right) {
        EXPECT_NEAR(found->value, *right, 1e-15 * std::abs(*right)) << text;
    }
}

TEST(SoleNumber, IsOneNumberOrNothing) {
    const std::vector<std::pair<std::string, std::optional<double>>> table = {
        {R"(\frac{3}{4})", 0.75},
        {R"(\dfrac{-3}{4})", -0.75},
        {R"(-\tfrac34)", -0.75},
        {R"(\frac 3 4)", 0.75},
        {R"(- \frac{3}{4})", -0.75},
        {R"($\frac{3}{4}$.)", 0.75},
        {R"(\( \displaystyle \frac{3}{4} \))", 0.75},
        {R"(\frac{\frac{1}{2}}{4})", 0.125},
        {R"(2\frac{1}{2})", 2.5},
        {R"(-2\frac12)", -2.5},
        {R"(2\sqrt{4})", 4},
        {R"(\sqrt[3]{8})", 2},
        {R"(\sqrt[3]{-27})", -3},
        {R"(\sqrt2)", std::sqrt(2)},
        {R"(\sqrt{\frac{1}{4}})", 0.5},
        {R"(\frac{\sqrt{3}}{2})", std::sqrt(3) / 2},
        {R"(\frac{1}{2}\cdot\sqrt{16})", 2},
        {R"(3\sqrt{2}\sqrt{2}/2)", 3},
        {R"(\boxed{12})", 12},
        {R"($\boxed{\frac{1}{2}}$)", 0.5},
        {R"(12\text{ cm}^2)", 12},
        {R"(12 \mathrm{m})", 12},
        {R"(12\ \text{square units})", 12},
        {R"(\text{12})", 12},
        {R"(50\%)", 50},
        {R"(45^\circ)", 45},
        {R"(45^{\circ})", 45},
        {R"(\$1{,}234.50)", 1234.5},
        {R"(1,\!234,\!567)", 1234567},
        {R"(10\,000)", 10000},
        {"50%", 50},
        {"$1,234.50", 1234.5},
        {"-$5", -5},
        {"5$", 5},
        {"5.", 5},
        {".5", 0.5},
        {"1 1/2", 1.5},
        {"3/4", 0.75},
        {"**9**", 9},
        {"12 apples", 12},
        {"12cm", 12},
        {"60 km/h", 60},
        {"5 sq. ft.", 5},
        {"#### 1,000", 1000},
        {"2+2=4\n#### 4 apples", 4},
        {R"(4 of \boxed{5} #### \frac{1}{2})", 0.5},
        // Not one number.
        {"", kNone},
        {"none", kNone},
        {R"(x^{4})", kNone},
        {R"(4\pi)", kNone},
        {R"(3 \text{ or } 4)", kNone},
        {"3 or 4", kNone},
        {"4x", kNone},
        {"4 x", kNone},
        {"x = 4", kNone},
        {"(1, 2)", kNone},
        {"1, 2", kNone},
        {"[0, 1)", kNone},
        {R"(\{1, 2\})", kNone},
        {R"((1, \infty))", kNone},
        {R"(\infty)", kNone},
        {"2+2", kNone},
        {"10-3", kNone},
        {R"(1+\sqrt{2})", kNone},
        {"3:2", kNone},
        {"5!", kNone},
        {"1/2/2024", kNone},
        {"1/0", kNone},
        {R"(\frac{1}{0})", kNone},
        {R"(\frac{x}{4})", kNone},
        {R"(\frac{4})", kNone},
        {R"(\frac{4)", kNone},
        {R"(\sqrt{-4})", kNone},
        {R"(\sqrt[n]{8})", kNone},
        {R"(2\frac{3}{2})", kNone},
        {R"(3/4\sqrt{2})", kNone},
        {R"(10^{3})", kNone},
        {R"(0.\overline{3})", kNone},
        {R"(5 \text{ million})", kNone},
        {"5 million", kNone},
        {"5 squared", kNone},
        {"at least 5", kNone},
        {"5½", kNone},
        {"4π", kNone},
        {"- 5", kNone},
        {"12,34", kNone},
        {"1 2", kNone},
        {"#### ", kNone},
        {"5 #### x", kNone},
    };
    for (const auto& [text, right] : table) {
        expect(sole_number(text), right, text);
        if (right) expect(final_number(text), right, text);  // a sample is read alike
    }
}

TEST(FinalNumber, ReadsLatexInFreeText) {
    const std::vector<std::pair<std::string, std::optional<double>>> table = {
        {R"(so it is \frac{3}{4}.)", 0.75},
        {R"(x = -\frac{3}{4} or so)", -0.75},
        {R"(x = - \frac{3}{4})", -0.75},
        {R"(we take 2\frac{1}{2} cups)", 2.5},
        {R"(the side is $3\sqrt{4}$ cm)", 6},
        {R"(it is $\boxed{\frac{3}{4}}$, which is less than 1)", 0.75},
        {R"(\boxed{1}, no, \boxed{x = 2})", 2},
        {R"(\boxed{3 \text{ or } 4})", kNone},
        {R"(\boxed{4\pi})", kNone},
        {R"(I put it into \boxed{}: 5)", 5},
        {R"(5 \boxed{17)", 17},
        {R"(so \frac{1}{2}, about 50\%)", 50},
        {R"(#### \frac{3}{4})", 0.75},
        {R"(#### \frac{3}{4} of 5)", 0.75},
        // Part of a larger formula, and nothing before it counts.
        {R"(5 x^{4})", kNone},
        {R"(the area of 3 is 4\pi)", kNone},
        {R"(#### 4\pi)", kNone},
        {R"(5 is \frac{x}{4})", kNone},
        {R"(5 is \frac{3}{4)", kNone},
        {R"(5 is \frac{3)", kNone},
        {R"(5 is \sqrt{3)", kNone},
        {R"(5 is \sqrt{4x})", kNone},
        {R"(is 1+\sqrt{2})", kNone},
        {R"(is \frac{1}{2} + 3)", kNone},
        {R"(is 1/\sqrt{2})", kNone},
        {R"(is \frac{1}{2}x)", kNone},
        {R"(is 2 \times 3)", kNone},
        {R"(2 \times 3 = 6)", 6},
        {R"(4\pi \approx 12.57)", 12.57},
    };
    for (const auto& [text, right] : table) expect(final_number(text), right, text);
}

TEST(Numeric, JudgesTheAnswersOfMathData) {
    const NumericReward reward(kNumberTolerance);
    const auto score = [&](const std::string& completion, const std::string& answer) {
        const std::vector<AnsweredPrompt> one = {{"", completion, answer, false}};
        return reward.scores(one).at(0);
    };
    for (const char* right :
         {"0.75", "3/4", "6/8", R"(\frac{3}{4})", R"(so \boxed{\dfrac{6}{8}}.)", "#### .75"})
        EXPECT_EQ(score(right, R"(\frac{3}{4})"), 1) << right;
    for (const char* wrong : {"4", "3", "0.76", R"(\frac{4}{3})", "", "3 of 4"})
        EXPECT_EQ(score(wrong, R"(\frac{3}{4})"), 0) << wrong;
    EXPECT_EQ(score("4", R"(2\sqrt{4})"), 1);
    EXPECT_EQ(score("1.4142136", R"(\sqrt{2})"), 1);
    EXPECT_EQ(score("1.414", R"(\sqrt{2})"), 0);
    for (const char* answer : {R"(x^{4})", R"(4\pi)", R"(3 \text{ or } 4)"}) {
        EXPECT_EQ(reward.complaint(answer), "is not one number; reward numeric compares with one");
        EXPECT_EQ(score("4", answer), 0);
    }
}

TEST(SameNumber, WholeNumbersAndFractionsAreExact) {
    const auto same = [](const std::string& given, const std::string& right, double tolerance = 1e-6) {
        return same_number(final_number(given).value(), sole_number(right).value(), tolerance);
    };
    EXPECT_FALSE(same("10000001", "10000000"));
    EXPECT_TRUE(same("10000001", "10000000", 1e-3));  // asked for
    EXPECT_FALSE(same("100000000000000000000000000001", "100000000000000000000000000000"));
    EXPECT_TRUE(same("100000000000000000000000000000", "100,000,000,000,000,000,000,000,000,000"));
    EXPECT_FALSE(same("333333333/1000000000", "1/3"));
    EXPECT_TRUE(same("0.333333333", "1/3"));  // a decimal is rounded
    EXPECT_TRUE(same("10000000.1", "10000000"));
    EXPECT_FALSE(same("10000001.00", "10000000"));  // whole, however it is written
    EXPECT_TRUE(same(R"(\frac{\sqrt{2}}{2})", R"(\frac{1}{\sqrt{2}})", 0));
    EXPECT_FALSE(same("1.41421356", R"(\sqrt{2})", 0));
    const std::string huge(1000, '9');
    EXPECT_TRUE(same(huge, huge));
    EXPECT_FALSE(same(huge + "8", huge + "9"));
    EXPECT_FALSE(same("5", huge, 1));
    EXPECT_FALSE(sole_number(std::string(5000, '9')));
}

// --- random numbers, each with its value as a fraction of small whole numbers

struct Known {
    std::string text;
    std::int64_t above = 0, below = 1;
};

class Writer {
  public:
    explicit Writer(std::uint64_t seed) : random_(seed) {}

    std::int64_t from(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    std::string any(const std::vector<std::string>& words) {
        return words[static_cast<std::size_t>(from(0, static_cast<std::int64_t>(words.size()) - 1))];
    }
    // Without a sign, > 0.
    Known number(int depth) {
        switch (from(0, depth > 0 ? 6 : 2)) {
            case 0:
            case 1:
                return whole(from(1, 20000));
            case 2:
                return decimal();
            case 3: {
                const Known a = number(depth - 1), b = number(depth - 1);
                const bool minus = from(0, 3) == 0;  // above and below: no sign of the whole
                return {any({"\\frac", "\\dfrac", "\\tfrac"}) + (minus ? "{-" : "{") + a.text + "}" +
                            (minus ? "{-" : "{") + b.text + "}",
                        a.above * b.below, a.below * b.above};
            }
            case 4: {
                const std::int64_t root = from(1, 12), index = from(2, 4);
                const std::string power = std::to_string(static_cast<std::int64_t>(
                    std::llround(std::pow(static_cast<double>(root), static_cast<double>(index)))));
                const std::int64_t factor = from(1, 30);
                return {std::to_string(factor) + any({"", " ", "\\cdot ", " \\times "}) + "\\sqrt" +
                            (index == 2 ? "" : "[" + std::to_string(index) + "]") + "{" + power + "}",
                        factor * root, 1};
            }
            case 5: {
                const std::int64_t ones = from(1, 50), below = from(2, 9), above = from(1, below - 1);
                return {fmt::format("{}\\frac{{{}}}{{{}}}", ones, above, below), ones * below + above, below};
            }
            default: {
                const std::int64_t above = from(1, 500), below = from(1, 500);
                return {fmt::format("{}/{}", above, below), above, below};
            }
        }
    }

  private:
    Known whole(std::int64_t value) {
        std::string text = std::to_string(value);
        if (value >= 1000 && from(0, 1) == 0) text.insert(text.size() - 3, any({",", "{,}", ",\\!", "\\,"}));
        return {text, value, 1};
    }
    Known decimal() {
        const std::int64_t value = from(1, 999);
        return {fmt::format("{}.{:03}", value / 100, value % 100 * 10), value, 100};
    }

    std::mt19937_64 random_;
};

TEST(SoleNumber, RandomNumbersHaveTheirFraction) {
    Writer writer(20261125);
    for (int i = 0; i < 20'000; ++i) {
        const Known known = writer.number(2);
        const bool minus = writer.from(0, 2) == 0;
        const std::string number = (minus ? "-" : "") + known.text;
        const std::string answer = writer.any({"", "$", "\\("}) == "" ? number : "$" + number + "$";
        Fraction right{known.above, known.below};
        if (minus) right.above = -right.above;

        const auto read = sole_number(answer + writer.any({"", ".", "\\%", "\\text{ cm}", " apples"}));
        ASSERT_TRUE(read && read->exact) << answer;
        EXPECT_EQ(*read->exact, right) << answer;
        EXPECT_NEAR(read->value, double_of(right), 1e-9 * std::abs(read->value)) << answer;
        const auto sample =
            final_number(writer.any({"So it is ", "x = ", "1 and 2 make $", "\\boxed{"}) + number + "}");
        ASSERT_TRUE(sample && sample->exact) << number;
        EXPECT_EQ(*sample->exact, right) << number;

        const std::int64_t divisor = std::gcd(known.above, known.below);
        const std::string plain =
            fmt::format("{}{}/{}", minus ? "-" : "", known.above / divisor, known.below / divisor);
        EXPECT_TRUE(same_number(final_number(plain).value(), *read, 0)) << plain << " for " << answer;
        const std::string other =
            fmt::format("{}{}/{}", minus ? "" : "-", known.above / divisor, known.below / divisor);
        EXPECT_FALSE(same_number(final_number(other).value(), *read, 0)) << other << " for " << answer;
    }
}

TEST(SoleNumber, RootsAreNearlyTheirValue) {
    Writer writer(7);
    for (int i = 0; i < 2000; ++i) {
        const std::int64_t radicand = writer.from(1, 1'000'000), index = writer.from(2, 9);
        const double value = std::pow(static_cast<double>(radicand), 1.0 / static_cast<double>(index));
        const auto read = sole_number(fmt::format("\\sqrt[{}]{{{}}}", index, radicand)).value();
        EXPECT_NEAR(read.value, value, 1e-12 * value) << index << " " << radicand;
        const double nearest = std::round(value);
        EXPECT_EQ(read.exact.has_value(),
                  std::pow(nearest, static_cast<double>(index)) == static_cast<double>(radicand))
            << index << " " << radicand;
    }
}

}  // namespace
}  // namespace tandem::trainer
