// Answers of MATH-like data: LaTeX that is one number counts as that number, an answer that is none is
// refused or left out, and said so.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<std::string> kMathAnswers = {R"(\frac{3}{4})", R"(2\sqrt{4})", R"(x^{4})", R"(4\pi)",
                                               R"(3 \text{ or } 4)"};

class Answers : public Case {
  protected:
    // A model that always says `word`, and prompts with these answers, over and over.
    void prepare(const std::string& word, const std::vector<std::string>& answers,
                 const std::string& file = "prompts.jsonl") {
        write_chain(path("model"), {"\n", word, "<|im_end|>", "x"});
        write_lines(answers, file);
    }
    void write_lines(const std::vector<std::string>& answers, const std::string& file) {
        std::string lines;
        for (int round = 0; round < 20 / static_cast<int>(answers.size()); ++round) {
            for (const std::string& answer : answers)
                lines += json{{"prompt", "how much?"}, {"answer", answer}}.dump() + "\n";
        }
        write_text(path(file), lines);
    }
    std::vector<json> samples() const {
        std::ifstream in(path("runs/run/samples.jsonl"));
        std::vector<json> result;
        for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
        return result;
    }
};

// A run learned that "4" answers \frac{3}{4}, x^{4}, 4\pi and "3 or 4", and nothing said so.
TEST_F(Answers, ThatAreNoNumbersAreRefused) {
    prepare("4", kMathAnswers);
    const Ended refused = ended(train({"grpo.steps=1"}));
    EXPECT_EQ(refused.code, 2) << refused.text();
    EXPECT_THAT(refused.err, HasSubstr("prompts.jsonl:3: answer: is not one number"));
    EXPECT_THAT(refused.err, HasSubstr("'x^{4}'"));
    EXPECT_THAT(refused.err, HasSubstr("prompts.jsonl:4: is not one number"));
    EXPECT_THAT(refused.err, HasSubstr(R"('4\pi')"));
    EXPECT_THAT(refused.err, HasSubstr(R"(prompts.jsonl:5: )"));
    EXPECT_THAT(refused.err, HasSubstr("12 of 20 answers"));
    EXPECT_THAT(refused.err, testing::Not(HasSubstr("prompts.jsonl:8")));
    EXPECT_FALSE(std::filesystem::exists(path("runs")));
}

TEST_F(Answers, ThatAreNoNumbersAreLeftOutWhereAsked) {
    prepare("4", kMathAnswers);
    const Ended run = ended(train({"grpo.steps=1", "data.bad_answers=skip", "data.held_out=4"}));
    ASSERT_EQ(run.code, 0) << run.text();
    EXPECT_THAT(run.err, HasSubstr("12 lines are left out"));
    bool right = false, wrong = false;
    for (const json& sample : samples()) {
        const bool four = sample["expected"] == R"(2\sqrt{4})";
        EXPECT_TRUE(four || sample["expected"] == R"(\frac{3}{4})");
        EXPECT_EQ(sample["reward"], four ? 1 : 0) << sample;
        (four ? right : wrong) = true;
    }
    EXPECT_TRUE(right && wrong);
}

// The held-out file is read in the same way.
TEST_F(Answers, OfTheHeldOutFileAreRefusedToo) {
    prepare("4", {"4"});
    write_lines(kMathAnswers, "held.jsonl");
    const std::string file = "data.held_out_file=" + path("held.jsonl");
    const Ended refused = ended(train({file, "data.held_out=5"}));
    EXPECT_EQ(refused.code, 2) << refused.text();
    EXPECT_THAT(refused.err, HasSubstr("held.jsonl:3: answer: is not one number"));
    EXPECT_THAT(refused.err, HasSubstr("3 of 25 answers"));
    EXPECT_EQ(ended(train({file, "data.held_out=2", "grpo.steps=1"})).code, 0);  // only those are used
}

}  // namespace
}  // namespace tandem::test
