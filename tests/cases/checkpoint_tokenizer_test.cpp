// Whoever serves a checkpoint prompts it as it was trained: it holds tokenizer, template and ends of the run.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/cases/run.h"
#include "tests/support/eventually.h"

namespace tandem::test {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kOtherTemplate =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] <think>{% endif %}";

CaseModel other_template() {
    CaseModel model;
    model.tokenizer_config = {{"chat_template", kOtherTemplate}};
    return model;
}

json json_in(const std::string& file) {
    return json::parse(read_file(file));
}

}  // namespace

TEST_F(Case, ACheckpointHoldsTheRunsTokenizerAndTemplate) {
    CaseModel model;
    model.config = {{"eos_token_id", 0}};
    model.generation_config = json{{"eos_token_id", 0}, {"temperature", 0.5}};
    write_tiny(path("model"), model);
    write_text(path("model/chat_template.jinja"), "the model's own");
    write_tiny(path("other"), other_template());
    fs::create_directory(path("other/additional_chat_templates"));
    write_text(path("other/additional_chat_templates/tool_use.jinja"), "tools");
    write_text(path("other/chat_template.jinja"), kOtherTemplate);
    const Ended trained = ended(train({"grpo.steps=1", "data.tokenizer=" + path("other")}));
    ASSERT_EQ(trained.code, 0) << trained.text();
    EXPECT_THAT(read_file(path("runs/run/samples.jsonl")), HasSubstr("[assistant] <think>"));
    const std::string checkpoint = path("runs/run/checkpoint");
    EXPECT_EQ(json_in(checkpoint + "/tokenizer_config.json")["chat_template"], kOtherTemplate);
    EXPECT_EQ(read_file(checkpoint + "/tokenizer.json"), read_file(path("other/tokenizer.json")));
    EXPECT_EQ(read_file(checkpoint + "/additional_chat_templates/tool_use.jinja"), "tools");
    EXPECT_EQ(read_file(checkpoint + "/chat_template.jinja"), kOtherTemplate);  // not the model's
    EXPECT_FALSE(fs::exists(checkpoint + "/generation_config.json"));           // other/ has none
    EXPECT_EQ(json_in(checkpoint + "/config.json")["eos_token_id"], 2);         // as the run stopped
}

// A directory with tokenizer files alone: how to generate is the model's, the ends are the run's.
TEST_F(Case, ATokenizerAloneLeavesTheModelsGenerationConfig) {
    CaseModel model;
    model.config = {{"eos_token_id", 0}};
    model.generation_config = json{{"eos_token_id", 0}, {"temperature", 0.5}};
    write_tiny(path("model"), model);
    write_tiny(path("other"), other_template());
    fs::remove(path("other/config.json"));
    fs::remove(path("other/model.safetensors"));
    ASSERT_EQ(ended(train({"grpo.steps=1", "data.tokenizer=" + path("other")})).code, 0);
    const std::string checkpoint = path("runs/run/checkpoint");
    const json generation = json_in(checkpoint + "/generation_config.json");
    EXPECT_EQ(generation["temperature"], 0.5);
    EXPECT_EQ(generation["eos_token_id"], json({2, 0}));
    EXPECT_EQ(json_in(checkpoint + "/config.json")["eos_token_id"], json({2, 0}));
}

TEST_F(Case, AFreshModelsCheckpointHoldsItToo) {
    CaseModel model = other_template();
    model.generation_config = json{{"eos_token_id", 0}, {"top_k", 5}};
    write_tiny(path("other"), model);
    const Ended trained = ended(train({"model.path=", "model.vocab_size=264", "model.context=128",
                                       "grpo.steps=1", "data.tokenizer=" + path("other")}));
    ASSERT_EQ(trained.code, 0) << trained.text();
    const std::string checkpoint = path("runs/run/checkpoint");
    EXPECT_EQ(json_in(checkpoint + "/tokenizer_config.json")["chat_template"], kOtherTemplate);
    EXPECT_EQ(json_in(checkpoint + "/generation_config.json"),
              json({{"eos_token_id", {2, 0}}, {"top_k", 5}}));
    engine::Program engine(serve("runs/run/checkpoint"));
    const std::string url = engine.url();
    ASSERT_FALSE(url.empty()) << engine.output();
    EXPECT_THAT(engine.output(), HasSubstr("stop tokens: 2 <|im_end|> (chat template, tokenizer_config.json, "
                                           "generation_config.json, config.json)"));
    EXPECT_EQ(
        ask(url, "POST", "/generate", R"({"text": "a", "sampling_params": {"max_new_tokens": 2}})").status,
        200);
}

// The cache that it came from was cleaned meanwhile, or a newer version put in its place: hours of training ended with "cannot be
// opened", and nothing to go on from.
TEST_F(Case, AModelThatIsGoneWhenTheRunEndsIsTheOneItBeganWith) {
    CaseModel model;
    model.generation_config = json{{"temperature", 0.5}};
    write_tiny(path("model"), model);
    write_tiny(path("newer"), other_template());
    for (const bool replaced : {false, true}) {
        const std::string name = replaced ? "replaced" : "gone";
        fs::copy(path("model"), path(name));
        const std::string metrics = path("runs/" + name + ".partial/metrics.jsonl");
        const auto steps = [&] {
            const std::string text = fs::exists(metrics) ? read_file(metrics) : "";
            return std::count(text.begin(), text.end(), '\n');
        };
        Program run(train({"grpo.steps=20", "run.name=" + name, "model.path=" + path(name)}));
        ASSERT_TRUE(eventually([&] { return steps() > 1 || !run.running(); })) << run.err();
        const auto children = run.children();
        ASSERT_TRUE(children.contains("rank 0")) << run.err();
        const pid_t rank = children.at("rank 0");
        ASSERT_EQ(::kill(rank, SIGSTOP), 0);
        ASSERT_LT(steps(), 20);
        fs::remove_all(path(name));
        if (replaced) fs::copy(path("newer"), path(name));
        ASSERT_EQ(::kill(rank, SIGCONT), 0);
        ASSERT_EQ(run.wait(), 0) << run.err();
        const std::string checkpoint = path("runs/" + name + "/checkpoint");
        for (const char* file : {"/tokenizer.json", "/tokenizer_config.json", "/generation_config.json"})
            EXPECT_EQ(read_file(checkpoint + file), read_file(path("model") + file)) << name;
        EXPECT_EQ(json_in(checkpoint + "/config.json")["hidden_size"],
                  json_in(path("model/config.json"))["hidden_size"]);
    }
}

}  // namespace tandem::test
