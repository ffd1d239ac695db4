// A model that never stops: the token that ends its turn is named by a file that the engine did not read.
#include "tests/cases/run.h"

namespace tandem::test {

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Text and finish_reason of one greedy answer to "a".
json answer_to_a(const std::string& url, const json& more = json::object()) {
    json params{{"max_new_tokens", 12}, {"temperature", 0}};
    params.update(more);
    return ask(url, "POST", "/generate", json{{"text", "a"}, {"sampling_params", params}}.dump()).json();
}

const std::vector<std::string> kChainWords = {"a", "b", "c", "d", "<|im_end|>", "x", "y", "z", "x"};

// A chain of letters that ends at <|im_end|>, which no file names but those of `model`.
CaseModel nameless_ends() {
    CaseModel model;
    model.config = {{"eos_token_id", nullptr}};
    model.tokenizer_config = {{"eos_token", kDrop}, {"chat_template", kDrop}};
    return model;
}

}  // namespace

// As transformers 5 saves a model whose generation_config names the ends.
TEST_F(Case, TheEngineStopsWhereGenerationConfigSays) {
    CaseModel model = nameless_ends();
    model.config.update({{"torch_dtype", kDrop}, {"dtype", "float32"}});
    model.generation_config = json{{"eos_token_id", {2, 0}}};
    write_chain(path("model"), kChainWords, model);
    engine::Program engine(serve());
    const std::string url = engine.url();
    const json answer = answer_to_a(url);
    EXPECT_EQ(answer["text"], "bcd");
    EXPECT_EQ(answer["meta_info"]["finish_reason"], json({{"type", "stop"}, {"matched", 2}}));
    EXPECT_THAT(engine.output(), AllOf(HasSubstr("stop tokens: 2 <|im_end|> (generation_config.json), "
                                                 "0 <|endoftext|> (generation_config.json)")));
    EXPECT_EQ(answer_to_a(url, {{"ignore_eos", true}})["text"], "bcdxyzxyzxy");
    EXPECT_EQ(
        answer_to_a(url, {{"stop_token_ids", {case_token('c')}}})["meta_info"]["finish_reason"]["matched"],
        case_token('c'));
}

TEST_F(Case, AnySingleFileThatNamesTheEndIsEnough) {
    std::map<std::string, CaseModel> by;
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer_config.json", "chat template"})
        by[name] = nameless_ends();
    by["config.json"].config = {{"eos_token_id", {0, 2}}};
    by["generation_config.json"].generation_config = json{{"eos_token_id", 2}};
    by["tokenizer_config.json"].tokenizer_config["eos_token"] = {{"content", "<|im_end|>"}};
    by["chat template"].tokenizer_config["chat_template"] =
        "{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}";
    for (const auto& [name, model] : by) {
        write_chain(path(name), kChainWords, model);
        engine::Program engine(serve(name));
        EXPECT_EQ(answer_to_a(engine.url())["meta_info"]["finish_reason"],
                  json({{"type", "stop"}, {"matched", 2}}))
            << name;
        EXPECT_THAT(engine.output(), HasSubstr("2 <|im_end|> (" + name + ")"));
    }
}

// vLLM and transformers go on with what a sloppy file says; the id cannot be sampled.
TEST_F(Case, AnEndOutsideTheVocabularyIsLeftOutWithAWarning) {
    CaseModel model = nameless_ends();
    model.generation_config = json{{"eos_token_id", {128009, 2}}};
    write_chain(path("model"), kChainWords, model);
    engine::Program engine(serve());
    EXPECT_EQ(answer_to_a(engine.url())["text"], "bcd");
    EXPECT_THAT(engine.output(),
                HasSubstr("generation_config.json: eos_token_id: 128009 is no token of a vocabulary of 264"));
}

TEST_F(Case, AnEndThatIsNoIdIsRefusedByFileAndKey) {
    CaseModel model;
    model.generation_config = json{{"eos_token_id", "<|im_end|>"}};
    write_tiny(path("model"), model);
    engine::Program engine(serve());
    EXPECT_EQ(engine.wait(), 2);
    const auto expected =
        HasSubstr("model/generation_config.json: eos_token_id: \"<|im_end|>\" is no token id");
    EXPECT_THAT(engine.output(), expected);
    const Ended trained = ended(train());
    EXPECT_EQ(trained.code, 2);
    EXPECT_THAT(trained.text(), expected);
}

TEST_F(Case, TheTrainerLogsWhereItsStopTokensComeFrom) {
    CaseModel model;
    model.config = {{"eos_token_id", nullptr}};
    model.generation_config = json{{"eos_token_id", {0, 2}}};
    write_tiny(path("model"), model);
    const Ended trained = ended(train({"grpo.steps=1"}));
    EXPECT_EQ(trained.code, 0) << trained.text();
    EXPECT_THAT(trained.text(),
                HasSubstr("stop tokens: 2 <|im_end|> (chat template, tokenizer_config.json, "
                          "generation_config.json), 0 <|endoftext|> (generation_config.json)"));
}

}  // namespace tandem::test
