// Prompts from a JSONL file: every broken line is named, the split, what becomes tokens and what a reward
// gets to see. The tokenizer is pretended: a token a byte, and two special ones.
#include "trainer/data/text_task.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/file_copy.h"
#include "trainer/data/prompt_order.h"
#include "trainer/data/text_codec.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int32_t kEnd = 256, kStart = 257;  // "<e>", "<s>"

class Bytes : public TextCodec {
  public:
    bool chat = true;
    std::string end = "<e>";

    Tokens encode(const std::string& text, bool add_special_tokens) const override {
        Tokens result;
        if (add_special_tokens) result.push_back(kStart);
        for (std::size_t i = 0; i < text.size(); ++i) {
            const std::string_view rest = std::string_view(text).substr(i);
            const bool special = rest.starts_with("<e>") || rest.starts_with("<s>");
            result.push_back(special ? (rest[1] == 'e' ? kEnd : kStart)
                                     : static_cast<std::int32_t>(static_cast<unsigned char>(text[i])));
            if (special) i += 2;
        }
        return result;
    }
    std::string decode(std::span<const std::int32_t> tokens, bool skip) const override {
        std::string result;
        for (const std::int32_t t : tokens) {
            if (t < 256) {
                result += static_cast<char>(t);
            } else if (!skip) {
                result += t == kEnd ? "<e>" : "<s>";
            }
        }
        return result;
    }
    bool has_chat_template() const override { return chat; }
    std::string render(const std::vector<ChatTurn>& turns, bool generate) const override {
        std::string text;
        for (const ChatTurn& turn : turns) {
            if (turn.role == "tool") throw Error("no tools here");
            text += turn.role.substr(0, 1) + ":" + turn.content + end + "\n";
        }
        return text + (generate ? "a:" : "");
    }
    std::optional<std::int32_t> eos_token() const override { return eos; }
    std::optional<std::int32_t> end_of_turn() const override {
        return end == "<e>" ? std::optional(kEnd) : std::nullopt;
    }
    std::int64_t vocab_size() const override { return 258; }

    std::optional<std::int32_t> eos;
};

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("tandem_text_test." + std::to_string(getpid()))) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name, std::ios::binary) << text;
        return (path / name).string();
    }
    fs::path path;
};

// Remembers what it was asked to judge.
class Spy final : public Reward {
  public:
    explicit Spy(std::vector<AnsweredPrompt>* seen) : seen_(seen) {}
    std::string complaint(const std::string& answer) const override {
        return answer == "bad" ? "is bad" : "";
    }
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override {
        seen_->assign(answered.begin(), answered.end());
        return std::vector<double>(answered.size(), 0.5);
    }

  private:
    std::vector<AnsweredPrompt>* seen_;
};

struct Rig {
    Folder folder;
    std::shared_ptr<Bytes> codec = std::make_shared<Bytes>();
    TextTaskOptions options;
    std::vector<AnsweredPrompt> seen;

    TextTask task(const std::string& lines) {
        options.prompts = folder.write("p.jsonl", lines);
        return TextTask(options, codec, {kEnd}, std::make_unique<Spy>(&seen));
    }
    // What is wrong with the lines, without the folder's name.
    std::string complaint(const std::string& lines) {
        try {
            task(lines).longest_prompt();
        } catch (const ConfigError& error) {
            std::string message = error.what();
            const std::string prefix = (folder.path / "").string();
            if (const auto at = message.find(prefix); at != std::string::npos)
                message.erase(at, prefix.size());
            return message;
        }
        return "good";
    }
};

TEST(TextTask, NamesBrokenLines) {
    Rig rig;
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
    EXPECT_THROW(TextTask(rig.options, rig.codec, {kEnd}, std::make_unique<Spy>(&rig.seen)), ConfigError);
    rig.options.prompts = rig.folder.path.string();
    EXPECT_THROW(TextTask(rig.options, rig.codec, {kEnd}, std::make_unique<Spy>(&rig.seen)), ConfigError);
}

TEST(TextTask, CountsAnswersThatCannotBeJudgedAgainst) {
    Rig rig;
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
    Rig rig;
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
    Rig rig;
    rig.options.held_out = 1;
    rig.options.prompts = rig.folder.write(
        "p.jsonl", "{\"prompt\": \"a\", \"solution\": 1}\n{\"prompt\": \"b\", \"answer\": \"\"}\n");
    RewardOptions numeric;
    numeric.rule = "numeric";
    const TextTask task(rig.options, rig.codec, {kEnd}, make_reward(numeric));
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
    Rig rig;
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
    Rig rig;
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
    Rig rig;
    rig.options.held_out = 1;
    rig.options.chat = false;
    rig.codec->chat = false;
    EXPECT_EQ(rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}"), "good");
    EXPECT_THAT(
        rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": [{\"role\": \"user\", \"content\": \"b\"}]}"),
        testing::StartsWith("p.jsonl:2: prompt: is a list of messages, and the tokenizer has no chat"));
}

TEST(TextTask, NeedsCompletionsToTeach) {
    Rig rig;
    rig.options.held_out = 1;
    rig.options.teaches = true;
    EXPECT_THAT(rig.complaint("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}"), "good");
    EXPECT_THAT(rig.complaint("{\"prompt\": \"a\"}\n{\"prompt\": \"a\"}"),
                testing::StartsWith("p.jsonl:1: completion: is missing; the warm start"));
}

TEST(TextTask, TheLastLinesAreHeldOut) {
    Rig rig;
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
    Rig rig;
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
    Rig rig;
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
    Rig rig;
    rig.options.held_out = 1;
    rig.options.keys = {"q", "a", "c"};
    const TextTask task = rig.task("{\"q\": \"one\", \"a\": 1.50}\n{\"q\": \"two\", \"a\": \"#### 2\"}\n");
    const Tokens first{'4', '2', kEnd, '7'}, second{'x', kStart, 'y'};
    using Split = PromptId::Split;
    const Prompt one = task.ask({Split::train, 0}), two = task.ask({Split::held_out, 0});
    EXPECT_EQ(one.tokens, task.train_prompt(0));
    EXPECT_EQ(two.answer, "#### 2");
    const std::vector<Attempt> attempts = {{one, first, false}, {two, second, true}};
    EXPECT_THAT(task.rewards(attempts), ElementsAre(0.5, 0.5));
    ASSERT_EQ(rig.seen.size(), 2u);
    EXPECT_EQ(rig.seen[0].prompt, "u:one<e>\na:");
    EXPECT_EQ(rig.seen[0].completion, "42");
    EXPECT_EQ(rig.seen[0].answer, "1.5");
    EXPECT_FALSE(rig.seen[0].truncated);
    EXPECT_EQ(rig.seen[1].completion, "xy");  // special tokens are not text
    EXPECT_EQ(rig.seen[1].answer, "#### 2");
    EXPECT_TRUE(rig.seen[1].truncated);
}

TEST(TextTask, TeachesTheCompletionAndTheEnd) {
    Rig rig;
    rig.options.held_out = 1;
    rig.options.teaches = true;
    const TextTask task = rig.task(
        "{\"prompt\": \"one\", \"completion\": \"abc\"}\n{\"prompt\": \"two\", \"completion\": \"d\"}\n"
        "{\"prompt\": \"3\"}\n");
    Random random(0, Purpose::sft);
    EXPECT_THAT(task.teach(0, random), ElementsAre('a', 'b', 'c', kEnd));
    const Lesson lesson = task.lesson(0, random);
    EXPECT_EQ(lesson.prompt, task.train_prompt(0));
    EXPECT_EQ(lesson.answer, task.teach(0, random));
    EXPECT_EQ(task.longest_answer(), 4);
}

TEST(PromptOrder, TakesEachPromptOnceAnEpoch) {
    Rig rig;
    rig.options.held_out = 1;
    std::string lines;
    for (int i = 0; i < 8; ++i) lines += "{\"prompt\": \"p\"}\n";
    const TextTask task = rig.task(lines);  // 7 to train on
    PromptOrder order(task, 3);
    Random unused(3, Purpose::rollout_prompts);
    std::vector<std::int64_t> all;
    for (std::int64_t step = 0; step < 14; ++step) {
        const auto taken = order.take(step, 3, unused);
        all.insert(all.end(), taken.begin(), taken.end());
    }
    std::set<std::vector<std::int64_t>> epochs;
    for (std::size_t start = 0; start < all.size(); start += 7) {
        std::vector<std::int64_t> epoch(all.begin() + static_cast<std::ptrdiff_t>(start),
                                        all.begin() + static_cast<std::ptrdiff_t>(start + 7));
        EXPECT_THAT(epoch, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6));
        epochs.insert(epoch);
    }
    EXPECT_EQ(epochs.size(), 6u);  // each in an order of its own
    // A resumed run takes up where it stopped; another seed goes another way.
    PromptOrder resumed(task, 3), other(task, 4);
    EXPECT_EQ(resumed.take(5, 3, unused), std::vector<std::int64_t>(all.begin() + 15, all.begin() + 18));
    EXPECT_NE(other.take(0, 7, unused), std::vector<std::int64_t>(all.begin(), all.begin() + 7));
}

TEST(StopTokens, ComeFromEveryPlaceThatNamesThem) {
    const Folder folder;
    const std::string directory = folder.path.string();
    Bytes codec;
    const auto stops = [&] { return stop_tokens_of(directory, codec, codec.vocab_size()).ids; };
    EXPECT_THAT(stops(), ElementsAre(kEnd));  // the template's end of turn
    codec.eos = 7;
    folder.write("generation_config.json", R"({"eos_token_id": [9, 256]})");
    folder.write("config.json", R"({"eos_token_id": 8})");
    EXPECT_THAT(stops(), ElementsAre(kEnd, 7, 9, 8));
    codec.end = ".";  // no special token behind an assistant's words
    EXPECT_THAT(stops(), ElementsAre(7, 9, 256, 8));
    folder.write("config.json", R"({"eos_token_id": 258})");
    EXPECT_THROW(stops(), ConfigError);
    folder.write("config.json", "[");
    EXPECT_THROW(stops(), ConfigError);
    folder.write("config.json", "{}");
    folder.write("generation_config.json", "{}");
    codec.eos.reset();
    EXPECT_THROW(stops(), ConfigError);
}

TEST(FileCopy, IsWhatWasReadAndNobodyCanChangeIt) {
    const Folder folder;
    const std::string file = folder.write("a.jsonl", "{}\n");
    auto copy = FileCopy::of(file);
    folder.write("a.jsonl", "[1, 2]\n");
    EXPECT_EQ(copy->text(), "{}\n");
    EXPECT_EQ(FileCopy::of(file), copy);
    const auto opened = FileCopy::shared(file, copy->announced());  // as another process would
    EXPECT_EQ(opened->text(), "{}\n");
    const int memory = ::open(copy->announced().c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::pwrite(memory, "x", 1, 0), -1);
    EXPECT_EQ(::ftruncate(memory, 0), -1);
    ::close(memory);
    EXPECT_THROW(FileCopy::shared(file, "/dev/zero"), BadInput);
    copy.reset();
    EXPECT_EQ(FileCopy::of(file), opened);
}

TEST(JsonLines, IndexesALargeFileOnce) {
    const Folder folder;
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "{\"prompt\": " + std::to_string(i) + "}\n";
    const JsonLines lines(folder.write("large.jsonl", text));
    EXPECT_EQ(lines.size(), 200'000u);
    for (const std::size_t i : {std::size_t{0}, std::size_t{77'777}, std::size_t{199'999}}) {
        EXPECT_EQ(lines.object(i)["prompt"], i);
        EXPECT_THAT(lines.place(i), testing::EndsWith(":" + std::to_string(i + 1)));
    }
}

}  // namespace
}  // namespace tandem::trainer
