// Whole runs of tandem-train on a text: prompts from JSONL, a small tokenizer, a fresh model; broken files
// and a reward server, good and gone.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/http/server.h"
#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A token a byte of ASCII, in byte-level BPE without merges, and the two tokens of a chat.
void write_tokenizer(const std::string& directory, bool chat_template) {
    fs::create_directories(directory);
    json vocab = json::object();
    const auto add = [&](const std::string& token) { vocab[token] = vocab.size(); };
    for (int c = '!'; c <= '~'; ++c) add(std::string(1, static_cast<char>(c)));
    add("Ġ");  // how byte-level BPE spells a space and a line's end
    add("Ċ");
    json added = json::array();
    for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
        added.push_back({{"id", vocab.size() + added.size()},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    const json byte_level{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    const json tokenizer{{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", added},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", byte_level},
                         {"post_processor", nullptr},
                         {"decoder", byte_level},
                         {"model",
                          {{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"vocab", vocab},
                           {"merges", json::array()}}}};
    std::ofstream(directory + "/tokenizer.json") << tokenizer;
    json config{{"eos_token", "<|im_end|>"}, {"bos_token", "<|im_start|>"}};
    if (chat_template) {
        config["chat_template"] =
            "{% for message in messages %}{{ '<|im_start|>' + message['role'][0] + message['content'] + "
            "'<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>a' }}{% endif %}";
    }
    std::ofstream(directory + "/tokenizer_config.json") << config;
}

// Which of two letters comes first: easy enough to be learned in seconds.
std::string problems() {
    std::string lines;
    for (int i = 0; i < 64; ++i) {
        const char a = static_cast<char>('a' + i % 8), b = static_cast<char>('a' + i / 8);
        const std::string answer(1, std::min(a, b));
        lines +=
            json{{"prompt", std::string{a, b}}, {"answer", answer}, {"completion", answer}}.dump() + "\n";
    }
    return lines;
}

class TextRun : public testing::Test {
  protected:
    void SetUp() override {
        write_tokenizer(folder / "tokenizer", true);
        write_prompts(problems());
    }
    void write_prompts(const std::string& lines) { std::ofstream(folder / "p.jsonl") << lines; }

    std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
        std::vector<std::string> values = {"output=" + (folder / "runs"),
                                           "name=text",
                                           "mesh.dp=2",
                                           "hidden_size=32",
                                           "intermediate_size=64",
                                           "vocab_size=112",
                                           "context=64",
                                           "sft.steps=40",
                                           "sft.batch=48",
                                           "sft.lr=1e-2",
                                           "grpo.steps=3",
                                           "grpo.prompts=8",
                                           "grpo.samples=4",
                                           "max_new_tokens=4",
                                           "held_out=16",
                                           "data.prompts=" + (folder / "p.jsonl"),
                                           "data.tokenizer=" + (folder / "tokenizer"),
                                           "run.if_exists=overwrite"};
        values.insert(values.end(), more.begin(), more.end());
        std::vector<std::string> result = {"tandem-train", folder / "empty.toml"};
        std::ofstream(folder / "empty.toml") << "";
        for (const std::string& value : values) result.insert(result.end(), {"--set", value});
        return result;
    }
    json summary() const { return json::parse(read_file(folder / "runs/text/summary.json")); }
    std::vector<json> lines_of(const std::string& file) const {
        std::vector<json> result;
        std::ifstream in(folder / ("runs/text/" + file));
        for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
        return result;
    }

    Folder folder;
};

TEST_F(TextRun, LearnsFromJsonl) {
    Program program(command({"held_out_samples=2"}));
    ASSERT_EQ(program.wait(), 0) << program.err();
    const json s = summary();
    EXPECT_EQ(s["task"], "text");
    EXPECT_GT(s["greedy_pass_at_1_last"], 0.4);  // of eight letters
    EXPECT_TRUE(s["weights_match"]);
    EXPECT_TRUE(s.contains("pass_at_2_last"));
    EXPECT_GT(s["mfu"], 0);
    const auto samples = lines_of("samples.jsonl");
    ASSERT_EQ(samples.size(), 4u * 5);
    EXPECT_THAT(samples[0]["prompt"].get<std::string>(),
                testing::MatchesRegex("<\\|im_start\\|>u..<\\|im_end\\|><\\|im_start\\|>a"));
    for (const json& sample : samples) {
        const std::string said = sample["completion"];
        const bool right = said == sample["expected"].get<std::string>() + "<|im_end|>";
        EXPECT_EQ(sample["reward"], right ? 1.0 : 0.0) << said;
        EXPECT_EQ(sample["truncated"], !said.ends_with("<|im_end|>")) << said;
    }
    for (const json& line : lines_of("metrics.jsonl")) {
        // Two letters, the template around them, one letter and the end.
        if (line["phase"] == "sft") {
            EXPECT_EQ(line["tokens"], 48 * 9);
        }
    }
    EXPECT_THAT(read_file(folder / "runs/text/report.html"), HasSubstr("What the model says"));
}

TEST_F(TextRun, AsksARewardServer) {
    std::atomic<int> samples{0};
    http::Server server({"127.0.0.1:0", std::size_t{8} << 20, std::chrono::milliseconds(5000)});
    server.route("POST", "/score", [&](const http::Request& request, http::Responder respond) {
        json scores = json::array();
        const json body = json::parse(request.body);
        for (const json& sample : body["samples"]) {
            ++samples;
            scores.push_back(sample["completion"] == sample["answer"] ? 0.75 : 0.25);
        }
        respond.send(200, json{{"scores", scores}});
    });
    server.start();
    const auto values = [&](const std::string& url) {
        return std::vector<std::string>{"data.reward=" + url, "reward_deadline_s=2", "sft.steps=0",
                                        "grpo.steps=1"};
    };
    Program program(command(values(server.url() + "/score")));
    ASSERT_EQ(program.wait(), 0) << program.err();
    EXPECT_EQ(samples, 2 * (16 + 16) + 32);  // two evaluations of 16 prompts, and a step
    EXPECT_GE(summary()["reward_first"], 0.25);
    EXPECT_EQ(summary()["greedy_pass_at_1_first"], 0);  // pass_score is 1

    server.stop();
    Program alone(command(values(server.url() + "/score")));
    EXPECT_EQ(alone.wait(), 1);
    EXPECT_THAT(alone.err(), HasSubstr(server.url() + "/score"));
}

TEST_F(TextRun, BrokenFilesEndWithTwoAndWriteNothing) {
    const std::string good = "{\"prompt\": \"ab\", \"answer\": \"a\"}\n";
    const auto refused = [&](const std::vector<std::string>& more) {
        std::vector<std::string> values = {"sft.steps=0", "held_out=1"};
        values.insert(values.end(), more.begin(), more.end());
        Program program(command(values));
        EXPECT_EQ(program.wait(), 2) << program.err();
        EXPECT_FALSE(fs::exists(folder / "runs"));
        return program.err();
    };
    write_prompts(good + good + "{\"prompt\": }\n" + good);
    EXPECT_THAT(refused({}), HasSubstr("p.jsonl:3:12: not JSON"));
    write_prompts(good + good + "{\"answer\": \"a\"}\n");
    EXPECT_THAT(refused({}), HasSubstr("p.jsonl:3: prompt: is missing"));
    write_prompts(good + "{\"prompt\": \"" + std::string(80, 'x') + "\", \"answer\": \"a\"}\n" + good);
    EXPECT_THAT(refused({}), HasSubstr("p.jsonl:2: prompt: has 85 tokens; with 4 to come"));
    write_prompts(good + good);
    EXPECT_THAT(refused({"data.reward=numeric"}), HasSubstr("p.jsonl:1: answer: holds no number"));
    EXPECT_THAT(refused({"data.reward=regex", "reward_pattern=(a"}), HasSubstr("not a regular expression"));
    EXPECT_THAT(refused({"data.reward=fuzzy"}), HasSubstr("data.reward: 'fuzzy' is not exact"));
    EXPECT_THAT(refused({"held_out=2"}), HasSubstr("p.jsonl: has 2 lines; 2 held out"));
    EXPECT_THAT(refused({"data.prompts=/nowhere.jsonl"}), HasSubstr("/nowhere.jsonl: cannot be read"));
    EXPECT_THAT(refused({"data.tokenizer=/nowhere"}), HasSubstr("/nowhere"));
    EXPECT_THAT(refused({"data.tokenizer="}), HasSubstr("text needs a tokenizer"));
    EXPECT_THAT(refused({"data.task=sum4"}), HasSubstr("data.prompts: is for the task text"));
    EXPECT_THAT(refused({"vocab_size=16"}), HasSubstr("a vocabulary of 16 is too small for task text"));
    EXPECT_THAT(refused({"sft.steps=1"}), HasSubstr("p.jsonl:1: completion: is missing"));
    write_tokenizer(folder / "tokenizer", false);
    EXPECT_THAT(refused({"data.chat=on"}), HasSubstr("data.chat: is on, but the tokenizer"));
}

// Ids come from a file: no number is cut to one that fits, and no line has no end.
TEST_F(TextRun, TokenizeTakesIdsAsTheyAre) {
    const auto tokenize = [&](const std::string& file, const std::vector<std::string>& more, int code) {
        std::vector<std::string> words{"tandem-engine", "tokenize", "--model", folder / "tokenizer",
                                       "--decode",      "--file",   file};
        words.insert(words.end(), more.begin(), more.end());
        Program program(words);
        EXPECT_EQ(program.wait(), code) << program.err();
        return code == 0 ? program.out() : program.err();
    };
    const auto holding = [&](const std::string& lines) {
        std::ofstream(folder / "ids") << lines;
        return folder / "ids";
    };
    const std::string two = tokenize(holding("1 2\n"), {}, 0);
    EXPECT_EQ(tokenize(holding("  1\t2 \n\n"), {}, 0), two + "\n");
    EXPECT_EQ(tokenize(holding("[1, 2]\n"), {"--json"}, 0),
              json(two.substr(0, two.size() - 1)).dump() + "\n");
    for (const char* id : {"99999999999", "-1", "2x", "0x2", "1.5"}) {
        EXPECT_THAT(tokenize(holding("1\n1 " + std::string(id) + "\n"), {}, 2),
                    HasSubstr(std::string("line 2: must be token ids with spaces between, found ") + id));
    }
    for (const char* id : {"4294967296", "-1", "1.5"}) {
        EXPECT_THAT(tokenize(holding("[1, " + std::string(id) + "]\n"), {"--json"}, 2),
                    HasSubstr(std::string("line 1: ") + id + " is no whole number"));
    }
    EXPECT_THAT(tokenize("/dev/zero", {}, 2), HasSubstr("line 1: is longer than 67108864 bytes"));
}

}  // namespace
}  // namespace tandem::test
