// Prompts files as people have them: too long, keyed otherwise, rendered already.
#include <gtest/gtest.h>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Prompts : public Case {
  protected:
    Prompts() { write_chain(path("model"), {"\n", "4", "<|im_end|>", "x"}); }
    void write_lines(const std::vector<json>& lines) {
        std::string text;
        for (const json& line : lines) text += line.dump() + "\n";
        write_text(path("prompts.jsonl"), text);
    }
};

// "Prompt of line 17 is too long"; mended; "prompt of line 39 is too long"; and so on.
TEST_F(Prompts, ThatAreTooLongAreCounted) {
    change_json(path("model/config.json"), {{"max_position_embeddings", 64}});
    std::vector<json> lines;
    for (std::size_t i = 1; i <= 20; ++i)
        lines.push_back({{"prompt", std::string(i % 4 == 0 ? 80 + i : 3, 'x')}, {"answer", 4}});
    write_lines(lines);
    const Ended refused = ended(train());
    EXPECT_EQ(refused.code, 2) << refused.text();
    EXPECT_THAT(refused.err, HasSubstr("prompts.jsonl:20: prompt: has "));  // the longest
    EXPECT_THAT(refused.err,
                HasSubstr("the model's context of 64; 5 of 20 prompts are longer than the 58 tokens"));
    EXPECT_THAT(refused.err,
                testing::ContainsRegex("prompts.jsonl:4, .*prompts.jsonl:8, .*prompts.jsonl:12 and 2 more"));
}

TEST_F(Prompts, WithoutAnAnswerListTheirKeys) {
    write_lines(std::vector<json>(20, {{"prompt", "2+2="}, {"solution", 4}, {"level", "easy"}}));
    const Ended refused = ended(train());
    EXPECT_EQ(refused.code, 2) << refused.text();
    EXPECT_THAT(refused.err,
                HasSubstr("prompts.jsonl:1: answer: is missing; the line has level, prompt, solution "
                          "(data.answer_key names another key)"));
    EXPECT_THAT(refused.err, HasSubstr("20 of 20 answers"));
    EXPECT_EQ(ended(train({"data.answer_key=solution", "grpo.steps=1"})).code, 0);
}

// Prompts rendered beforehand get a second template around them, and the run learns nothing.
TEST_F(Prompts, ThatWereRenderedAlreadyAreWarnedOf) {
    const std::string rendered = "<|im_start|>user\n2+2=<|im_end|>\n<|im_start|>assistant\n";
    std::vector<json> lines(20, {{"prompt", "2+2="}, {"answer", 4}});
    for (const std::size_t i : {4u, 9u}) lines[i]["prompt"] = rendered;
    write_lines(lines);
    const Ended run = ended(train({"grpo.steps=1", "data.chat=on"}));
    ASSERT_EQ(run.code, 0) << run.text();
    EXPECT_THAT(run.err, testing::ContainsRegex("2 of 20 prompts contain <.im_start.> of the chat template"));
    EXPECT_EQ(run.err.find("of the chat template"), run.err.rfind("of the chat template"));
    const Ended plain = ended(train({"grpo.steps=1", "data.chat=off", "run.name=plain"}));
    ASSERT_EQ(plain.code, 0) << plain.text();
    EXPECT_THAT(plain.err, testing::Not(HasSubstr("of the chat template")));
}

}  // namespace
}  // namespace tandem::test
