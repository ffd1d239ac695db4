// Prompts from a JSONL file: every broken line is named, the split, what becomes tokens and what a reward
// gets to see.
#include "trainer/data/text_task.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "tests/unit/trainer/data/text_rig.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TextTask, NamesBrokenLines) {
    TextRig rig;
    rig.options.held_out = 1;
    const std::string good = R"({"prompt": "1+1", "answer": 2})";
    const std::vector<std::pair<std::string, std::string>> table = {
        {good + "\n" + good, "good"},
        {good + "\r\n\n  \n" + good + "\r\n\n", "good"},
        {"\xef\xbb\xbf" + good + "\n" + good, "good"},
        {"", "p.jsonl: holds no lines"},
        {"\n \n", "p.jsonl: holds no lines"},
        {good, "p.jsonl: has 1 lines; 1 held out (data.held_out) leave none to train on"},
        {good + "\n{\"prompt\": \"a\",,}\n" + good, "p.jsonl:2:16: not JSON: syntax error"},
        {good + "\n\n{\"prompt\": \"a\"\n" + good, "p.jsonl:3:15: not JSON: syntax error"},
        {good + "\n{\"prompt\": \"\xff\"}\n" + good, "p.jsonl:2:13: not JSON: syntax error"},
        {good + "\n[1]\n" + good, "p.jsonl:2: expects a JSON object, got array"},
        {good + "\n{} {}\n" + good, "p.jsonl:2:4: not JSON"},
        {good + "\n{\"prompt\": \"a\", \"answer\": 1e999}\n" + good,
         "p.jsonl:2: holds a number that no double holds"},
        {good + "\n{\"question\": \"a\", \"answer\": 1}\n" + good,
         "p.jsonl:2: prompt: is missing; the line has answer, question (data.prompt_key names another key)"},
        {good + "\n{}\n" + good, "p.jsonl:2: prompt: is missing; the line has no keys"},
        {good + "\n{\"prompt\": null}\n" + good, "p.jsonl:2: prompt: is missing"},
        {good + "\n{\"prompt\": \" \\n\"}\n" + good, "p.jsonl:2: prompt: is empty"},
        {good + "\n{\"prompt\": []}\n" + good, "p.jsonl:2: prompt: is empty"},
        {good + "\n{\"prompt\": 5}\n" + good, "p.jsonl:2: prompt: expects a text or a list of messages, got"},
        {good + "\n{\"prompt\": [\"a\"]}\n" + good, "p.jsonl:2: prompt[0].role: is missing"},
        {good + "\n{\"prompt\": [{\"role\": \"user\"}]}\n" + good,
         "p.jsonl:2: prompt[0].content: is missing"},
        {good + "\n{\"prompt\": [{\"role\": \"user\", \"content\": 1}]}\n" + good,
         "p.jsonl:2: prompt[0].content: expects a text, got number"},
        {good + "\n{\"prompt\": [{\"role\": \"tool\", \"content\": \"x\"}]}\n" + good,
         "p.jsonl:2: prompt: no tools here"},
        {good + "\n{\"prompt\": \"a\", \"answer\": [1]}\n" + good,
         "p.jsonl:2: answer: expects a text or a number, got an array"},
        {good + "\n{\"prompt\": \"a\", \"answer\": \"bad\"}\n" + good, "p.jsonl:2: answer: is bad"},
        {good + "\n" + good + "\n{\"prompt\": \"\"}", "p.jsonl:3: prompt: is empty"},  // held out
    };
    for (const auto& [lines, message] : table)
        EXPECT_THAT(rig.complaint(lines), testing::StartsWith(message)) << lines;

    rig.options.prompts = (rig.folder.path / "none.jsonl").string();
    EXPECT_THROW(TextTask(rig.options, rig.codec, {kEndToken}, std::make_unique<SpyReward>(&rig.seen)),
                 ConfigError);
    rig.options.prompts = rig.folder.path.string();
    EXPECT_THROW(TextTask(rig.options, rig.codec, {kEndToken}, std::make_unique<SpyReward>(&rig.seen)),
                 ConfigError);
}

TEST(TextTask, CountsAnswersThatCannotBeJudgedAgainst) {
    TextRig rig;
    rig.options.held_out = 2;
    std::string lines;
    for (int i = 0; i < 8; ++i)
        lines += fmt::format("{{\"prompt\": \"p{}\", \"answer\": \"{}\"}}\n", i, i % 3 == 2 ? "5" : "bad");
    EXPECT_EQ(
        rig.complaint(lines),
        "p.jsonl:1: answer: is bad: 'bad'\n" + (rig.folder.path / "p.jsonl").string() +
            ":2: is bad: 'bad'\n" + (rig.folder.path / "p.jsonl").string() +
            ":4: is bad: 'bad'\n6 of 8 answers cannot be judged against; data.bad_answers = \"skip\" leaves "
            "such lines out");
}

TEST(TextTask, LeavesBadAnswersOut) {
    TextRig rig;
    rig.options.held_out = 2;
    rig.options.chat = false;
    rig.options.skip_bad_answers = true;
    std::string lines;
    for (int i = 0; i < 10; ++i)
        lines += fmt::format("{{\"prompt\": \"p{}\", \"answer\": \"{}\"}}\n", i, i % 2 == 1 ? "5" : "bad");
    {
        const TextTask task = rig.task(lines);  // 1, 3, 5 and 7, 9
        EXPECT_EQ(task.train_size(), 3);
        EXPECT_EQ(task.held_out_size(), 2);
        EXPECT_EQ(task.text(task.train_prompt(0)), "<s>p1");
        EXPECT_EQ(task.text(task.train_prompt(2)), "<s>p5");
        EXPECT_EQ(task.text(task.held_out_prompt(0)), "<s>p7");
        EXPECT_EQ(task.text(task.held_out_prompt(1)), "<s>p9");
        testing::internal::CaptureStderr();
        set_up_logging("test");
        task.longest_prompt();
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_THAT(said, HasSubstr("5 lines are left out"));
        EXPECT_THAT(said, HasSubstr("p.jsonl:5: is bad: 'bad'"));
        EXPECT_THAT(said, testing::Not(HasSubstr("p.jsonl:7")));
    }
    rig.options.held_out_file = rig.folder.write("h.jsonl", lines);
    {
        const TextTask task = rig.task(lines);
        EXPECT_EQ(task.train_size(), 5);
        EXPECT_EQ(task.text(task.held_out_prompt(1)), "<s>p3");
        rig.options.held_out_file.clear();
        rig.options.held_out = 5;
        EXPECT_THROW(rig.task(lines), ConfigError);
    }
    rig.options.held_out = 1;
    EXPECT_THROW(rig.task("{\"prompt\": \"a\", \"answer\": \"bad\"}\n"), ConfigError);
}

TEST(TextTask, AMissingAnswerListsTheKeys) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.prompts = rig.folder.write(
        "p.jsonl", "{\"prompt\": \"a\", \"solution\": 1}\n{\"prompt\": \"b\", \"answer\": \"\"}\n");
    RewardOptions numeric;
    numeric.rule = "numeric";
    const TextTask task(rig.options, rig.codec, {kEndToken}, make_reward(numeric));
    try {
        task.longest_prompt();
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("p.jsonl:1: answer: is missing; the line has prompt, solution "
                                            "(data.answer_key names another key)"));
        EXPECT_THAT(error.what(), HasSubstr("p.jsonl:2: is empty\n2 of 2"));
    }
}

TEST(TextTask, CountsLongPrompts) {
    TextRig rig;
    rig.options.held_out = 2;
    rig.options.chat = false;  // a token before each
    std::string lines;
    for (const std::size_t length : {3u, 30u, 40u, 5u, 20u, 50u, 7u, 60u})
        lines += "{\"prompt\": \"" + std::string(length, 'x') + "\"}\n\n";
    const TextTask task = rig.task(lines);
    EXPECT_EQ(task.prompts_longer_than(61).count, 0);
    const auto some = task.prompts_longer_than(41);
    EXPECT_EQ(some.count, 2);
    EXPECT_THAT(some.places, testing::MatchesRegex(".*/p.jsonl:11, .*/p.jsonl:15"));
    EXPECT_THAT(task.prompts_longer_than(10).places,
                testing::MatchesRegex(".*/p.jsonl:3, .*/p.jsonl:5, .*/p.jsonl:9 and 2 more"));
}

TEST(TextTask, WarnsOncePromptsThatWereRenderedAlready) {
    TextRig rig;
    rig.options.held_out = 1;
    const auto said = [&](const std::string& lines) {
        const TextTask task = rig.task(lines);
        testing::internal::CaptureStderr();
        set_up_logging("test");
        task.longest_prompt();
        task.longest_prompt();
        return testing::internal::GetCapturedStderr();
    };
    const std::string lines =
        "{\"prompt\": \"u:a<e>\\na:\"}\n{\"prompt\": \"b <s> c\"}\n{\"prompt\": [{\"role\": \"user\", "
        "\"content\": \"c<e>\"}]}\n";
    const std::string warned = said(lines);
    EXPECT_THAT(warned, HasSubstr("2 of 3 prompts contain <e> of the chat template"));
    EXPECT_THAT(warned, testing::ContainsRegex("p.jsonl:1, .*p.jsonl:3\\."));
    EXPECT_EQ(warned.find("of the chat template"), warned.rfind("of the chat template"));
    EXPECT_EQ(said("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n"), "");
    rig.options.chat = false;
    EXPECT_EQ(said("{\"prompt\": \"u:a<e>\\na:\"}\n{\"prompt\": \"b\"}\n"), "");
}

TEST(TextTask, NeedsATemplateForMessages) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.chat = false;
    rig.codec->chat = false;
    EXPECT_EQ(rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}"), "good");
    EXPECT_THAT(
        rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": [{\"role\": \"user\", \"content\": \"b\"}]}"),
        testing::StartsWith("p.jsonl:2: prompt: is a list of messages, and the tokenizer has no chat"));
}

TEST(TextTask, NeedsCompletionsToTeach) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.teaches = true;
    EXPECT_THAT(rig.complaint("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}"), "good");
    EXPECT_THAT(rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": \"a\"}"),
                testing::StartsWith("p.jsonl:1: completion: is missing; the warm start"));
}

TEST(TextTask, TheLastLinesAreHeldOut) {
    TextRig rig;
    rig.options.held_out = 2;
    rig.options.chat = false;
    std::string lines;
    for (int i = 0; i < 10; ++i) lines += "{\"prompt\": \"p" + std::to_string(i) + "\"}\n\n";
    const TextTask task = rig.task(lines);
    EXPECT_EQ(task.size(), 10);
    EXPECT_EQ(task.train_size(), 8);
    EXPECT_EQ(task.held_out_size(), 2);
    EXPECT_EQ(task.text(task.train_prompt(0)), "<s>p0");
    EXPECT_EQ(task.text(task.train_prompt(7)), "<s>p7");
    EXPECT_EQ(task.text(task.held_out_prompt(0)), "<s>p8");
    EXPECT_EQ(task.text(task.held_out_prompt(1)), "<s>p9");
}

TEST(TextTask, AFileOfItsOwnMayHoldThem) {
    TextRig rig;
    rig.options.held_out = 2;
    rig.options.chat = false;
    rig.options.held_out_file =
        rig.folder.write("h.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \"y\"}\n{\"prompt\": \"z\"}\n");
    const TextTask task = rig.task("{\"prompt\": \"a\"}\n");
    EXPECT_EQ(task.train_size(), 1);
    EXPECT_EQ(task.held_out_size(), 2);
    EXPECT_EQ(task.text(task.held_out_prompt(1)), "<s>y");
}

TEST(TextTask, RendersConversations) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.system = "be brief";
    const std::string lines =
        "{\"prompt\": \"hi\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}]}\n"
        "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
        "\"q\"}]}\n"
        "{\"prompt\": \"held\"}\n";
    {
        const TextTask task = rig.task(lines);
        EXPECT_EQ(task.text(task.train_prompt(0)), "s:be brief<e>\nu:hi<e>\na:");
        EXPECT_EQ(task.text(task.train_prompt(1)), "s:be brief<e>\nu:q<e>\na:");
        EXPECT_EQ(task.text(task.train_prompt(2)), "s:s<e>\nu:q<e>\na:");
        EXPECT_EQ(task.longest_prompt(), 22);
        EXPECT_THAT(task.place_of_longest_prompt(), testing::EndsWith("p.jsonl:4"));
    }
    rig.options.chat = false;
    const TextTask task = rig.task(lines);
    EXPECT_EQ(task.text(task.train_prompt(0)), "<s>hi");
    EXPECT_EQ(task.text(task.train_prompt(1)), "s:be brief<e>\nu:q<e>\na:");
}

TEST(TextTask, TheRewardSeesTheTextUpToTheFirstStopToken) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.keys = {"q", "a", "c"};
    const TextTask task = rig.task("{\"q\": \"one\", \"a\": 1.50}\n{\"q\": \"two\", \"a\": \"#### 2\"}\n");
    const Tokens first{'4', '2', kEndToken, '7'}, second{'x', kStartToken, 'y'};
    using Split = PromptId::Split;
    const Prompt one = task.ask({Split::train, 0}), two = task.ask({Split::held_out, 0});
    EXPECT_EQ(one.tokens, task.train_prompt(0));
    EXPECT_EQ(two.answer, "#### 2");
    const std::vector<Attempt> attempts = {{one, first, false}, {two, second, true}};
    EXPECT_THAT(task.rewards(attempts), ElementsAre(0.5, 0.5));
    ASSERT_EQ(rig.seen.size(), 2u);
    EXPECT_EQ(rig.seen[0].prompt, "u:one<e>\na:");
    EXPECT_EQ(rig.seen[0].completion, "42");
    EXPECT_EQ(rig.seen[0].answer, "1.50");
    EXPECT_FALSE(rig.seen[0].truncated);
    EXPECT_EQ(rig.seen[1].completion, "xy");  // special tokens are not text
    EXPECT_EQ(rig.seen[1].answer, "#### 2");
    EXPECT_TRUE(rig.seen[1].truncated);
}

TEST(TextTask, TeachesTheCompletionAndTheEnd) {
    TextRig rig;
    rig.options.held_out = 1;
    rig.options.teaches = true;
    const TextTask task = rig.task(
        "{\"prompt\": \"one\", \"completion\": \"abc\"}\n{\"prompt\": \"two\", \"completion\": \"d\"}\n"
        "{\"prompt\": \"3\"}\n");
    Random random(0, Purpose::sft);
    EXPECT_THAT(task.teach(0, random), ElementsAre('a', 'b', 'c', kEndToken));
    const Lesson lesson = task.lesson(0, random);
    EXPECT_EQ(lesson.prompt, task.train_prompt(0));
    EXPECT_EQ(lesson.answer, task.teach(0, random));
    EXPECT_EQ(task.longest_answer(), 4);
}

}  // namespace
}  // namespace tandem::trainer
