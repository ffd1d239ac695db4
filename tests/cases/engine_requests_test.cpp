// Requests as SGLang's clients send them: what they ask for happens, or is refused by its name.
#include <filesystem>
#include <future>
#include <thread>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class EngineRequests : public Case {
  protected:
    std::vector<std::string> small(std::vector<std::string> more = {}) const {
        more.insert(more.end(), {"--threads", "1", "--kv-tokens", "4096"});
        return serve("model", more);
    }
    void expect_ids_alone(const std::vector<std::string>& options, const std::string& why) const {
        engine::Program engine(small(options));
        const std::string url = engine.url();
        ASSERT_FALSE(url.empty()) << engine.output();
        const HttpAnswer text = ask(url, "POST", "/generate", R"({"text": "a"})");
        EXPECT_EQ(text.status, 400);
        EXPECT_THAT(text.body, AllOf(HasSubstr(why), HasSubstr("input_ids")));
        const HttpAnswer ids =
            ask(url, "POST", "/generate", R"({"input_ids": [72], "sampling_params": {"max_new_tokens": 3}})");
        EXPECT_EQ(ids.status, 200) << ids.body;
        EXPECT_EQ(ids.json().at("output_ids").size(), 3u);
        EXPECT_FALSE(ids.json().contains("text"));
        EXPECT_EQ(ask(url, "GET", "/server_info").json().at("skip_tokenizer_init"), true);
        const std::string output = engine.output();
        const auto warning = output.find("warning");
        EXPECT_EQ(warning != std::string::npos, options.empty()) << output;
        EXPECT_TRUE(warning == std::string::npos || output.find("warning", warning + 1) == std::string::npos);
    }
};

// sglang#5963, sglang#6855: over-sampling ends some prompts of a batch, and the others' work was lost.
TEST_F(EngineRequests, AbortOneOfABatch) {
    write_qwen2(path("model"));
    engine::Program engine(small());
    const std::string url = engine.url();
    const auto finish_reasons = [&](const json& rid, const json& aborted) {
        ask(url, "POST", "/pause_generation", R"({"mode": "in_place"})");
        const json body = {{"input_ids", {{72}, {73}, {74}}},
                           {"rid", rid},
                           {"sampling_params", {{"max_new_tokens", 20}, {"ignore_eos", true}}}};
        auto answer =
            std::async(std::launch::async, [&] { return ask(url, "POST", "/generate", body.dump()); });
        while (ask(url, "GET", "/server_info").json().at("waiting") != 3) std::this_thread::yield();
        EXPECT_EQ(ask(url, "POST", "/abort_request", json{{"rid", aborted}}.dump()).status, 200);
        ask(url, "POST", "/continue_generation", "{}");
        std::string reasons;
        for (const json& sample : answer.get().json()) {
            const json& reason = sample.at("meta_info").at("finish_reason");
            EXPECT_TRUE(reason.at("type") == "abort" || reason.at("length") == 20) << reason;
            reasons += reason.at("type").get<std::string>().front();
        }
        return reasons;
    };
    EXPECT_EQ(finish_reasons({"A", "B", "C"}, "A"), "all");
    EXPECT_EQ(finish_reasons({"A", "B", "C"}, "C"), "lla");
    EXPECT_EQ(finish_reasons({"group-1", "group-2", "other"}, "group"), "aal");
    EXPECT_EQ(finish_reasons({"A", "B", "C"}, "D"), "lll");
    EXPECT_EQ(finish_reasons("batch", "batch_1"), "lal");
    EXPECT_EQ(finish_reasons("batch", "batch"), "aaa");
    EXPECT_EQ(finish_reasons(nullptr, "t"), "lll") << "ids that are ours are nobody's prefix";
    for (const char* body : {"{}", R"({"rid": ""})", R"({"rid": null})", R"({"rid": ["A"]})"})
        EXPECT_EQ(ask(url, "POST", "/abort_request", body).status, 400) << body;
    EXPECT_EQ(ask(url, "POST", "/abort_request", R"({"abort_all": true})").status, 200);
}

// slime and miles send exactly these fields, and join turns from `text` (sglang#1650, sglang#85).
TEST_F(EngineRequests, NoStopTrimKeepsTheEndOfATurn) {
    CaseModel model;
    model.ends_with = 258;
    model.config = {{"eos_token_id", 258}};
    write_qwen2(path("model"), model);
    engine::Program engine(small());
    const std::string url = engine.url();
    int ended = 0;
    for (int i = 1; i <= 20; ++i) {
        const auto answered = [&](json params) {
            params.update(
                json{{"max_new_tokens", 3}, {"temperature", 0}, {"spaces_between_special_tokens", false}});
            return ask(url, "POST", "/generate", json{{"input_ids", {i}}, {"sampling_params", params}}.dump())
                .json();
        };
        const json whole = answered({{"no_stop_trim", true}, {"skip_special_tokens", false}});
        if (whole.at("output_ids") != json({258})) continue;
        ++ended;
        EXPECT_EQ(whole.at("text"), "<|im_end|>");
        EXPECT_EQ(answered({{"no_stop_trim", false}, {"skip_special_tokens", false}}).at("text"), "");
        EXPECT_EQ(answered({{"no_stop_trim", true}}).at("text"), "") << "a special token, which is skipped";
    }
    EXPECT_GT(ended, 0);
}

TEST_F(EngineRequests, AFieldThatIsNotReadIsRefusedByName) {
    write_qwen2(path("model"));
    engine::Program engine(small());
    const std::string url = engine.url();
    for (const char* field :
         {"top_logprobs_num", "return_hidden_states", "session_params", "sampling_param"}) {
        const HttpAnswer answer = ask(url, "POST", "/generate", json{{"input_ids", {1}}, {field, 1}}.dump());
        EXPECT_EQ(answer.status, 400);
        EXPECT_THAT(answer.body, HasSubstr(field));
    }
    EXPECT_THAT(ask(url, "POST", "/pause_generation", R"({"mod": "retract"})").body,
                HasSubstr("mod is not supported"));
}

// slime flushes by GET, up to 60 times, before each update.
TEST_F(EngineRequests, MethodsOfSglang) {
    write_qwen2(path("model"));
    engine::Program engine(small());
    const std::string url = engine.url();
    for (const char* method : {"GET", "POST"}) {
        EXPECT_EQ(ask(url, method, "/flush_cache").status, 200) << method;
        EXPECT_EQ(ask(url, method, "/weights_checker").status, 200) << method;
        for (const char* path : {"/release_memory_occupation", "/resume_memory_occupation"})
            EXPECT_EQ(ask(url, method, path, R"({"tags": ["kv_cache"]})").status, 200)
                << method << " " << path;
    }
    EXPECT_EQ(ask(url, "GET", "/release_memory_occupation").status, 400) << "a link must not change anything";
    const std::string body = R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}})";
    for (const char* method : {"POST", "PUT"})
        EXPECT_EQ(ask(url, method, "/generate", body).status, 200) << method;
}

// llm-jp's models are Unigram; an engine that is asked by ids needs no tokenizer at all.
TEST_F(EngineRequests, ATokenizerThatCannotBeReadIsNotNeeded) {
    write_qwen2(path("model"));
    const std::string file = path("model/tokenizer.json");
    const json good = json::parse(read_file(file));
    expect_ids_alone({"--skip-tokenizer-init"}, "--skip-tokenizer-init");
    write_text(file,
               R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}})");
    expect_ids_alone({}, "Unigram");
    json other = good;
    other["normalizer"] = {{"type", "BertNormalizer"}};
    write_text(file, other.dump());
    expect_ids_alone({}, "BertNormalizer");
    write_text(file, "{\"half a fi");
    expect_ids_alone({}, "tokenizer.json");
    write_text(file, "version https://git-lfs.github.com/spec/v1\n");
    expect_ids_alone({}, "tokenizer.json");
    std::filesystem::remove(file);
    expect_ids_alone({}, "no tokenizer files");
    std::filesystem::create_directory(file);
    expect_ids_alone({}, "tokenizer.json");
}

}  // namespace
}  // namespace tandem::test
