// What a task of prompts in files rests on: their lines, a copy that nobody changes, the order of an epoch, the tokens that
// end an answer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"
#include "tests/unit/trainer/data/text_rig.h"
#include "trainer/data/file_copy.h"
#include "trainer/data/json_lines.h"
#include "trainer/data/prompt_order.h"
#include "trainer/data/text_problem.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;

TEST(PromptOrder, TakesEachPromptOnceAnEpoch) {
    TextRig rig;
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
    const TextFolder folder;
    const std::string directory = folder.path.string();
    ByteCodec codec;
    const auto stops = [&] { return stop_tokens_of(directory, codec, codec.vocab_size()).ids; };
    EXPECT_THAT(stops(), ElementsAre(kEndToken));  // the template's end of turn
    codec.eos = 7;
    folder.write("generation_config.json", R"({"eos_token_id": [9, 256]})");
    folder.write("config.json", R"({"eos_token_id": 8})");
    EXPECT_THAT(stops(), ElementsAre(kEndToken, 7, 9, 8));
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
    const TextFolder folder;
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
    const TextFolder folder;
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "{\"prompt\": " + std::to_string(i) + "}\n";
    const JsonLines lines(folder.write("large.jsonl", text));
    EXPECT_EQ(lines.size(), 200'000u);
    for (const std::size_t i : {std::size_t{0}, std::size_t{77'777}, std::size_t{199'999}}) {
        EXPECT_EQ(lines.object(i)["prompt"], i);
        EXPECT_THAT(lines.place(i), testing::EndsWith(":" + std::to_string(i + 1)));
    }
}

// The library's numbers are doubles, in which the right answer would be another one.
TEST(JsonLines, ANumberIsWhatIsWritten) {
    const TextFolder folder;
    const std::vector<std::pair<std::string, std::string>> answers = {
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"3.14159265358979323846", "3.14159265358979323846"},
        {"-0", "-0"},
        {"1e3\t", "1e3"},
        {" true ", "true"},
        {"\"a \\\" , b\"", "a \" , b"},
        {"1, \"answer\": 2", "2"},  // the last, as the library has it
        {"2, \"x\": {\"answer\": 3}, \"y\": [4, \"answer\"], \"z\": \"answer\"", "2"},
    };
    std::string text;
    for (const auto& [written, answer] : answers)
        text += "{\"pr\\u006fmpt\": \"{\\\"answer\\\": 7}\", \"answer\" : " + written + "}\r\n";
    const JsonLines lines(folder.write("a.jsonl", text));
    ASSERT_EQ(lines.size(), answers.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(read_answer(lines, i, {}), answers[i].second);
        EXPECT_EQ(lines.written(i, "prompt"), "\"{\\\"answer\\\": 7}\"");
        EXPECT_EQ(lines.written(i, "none"), "");
    }
}

}  // namespace
}  // namespace tandem::trainer
