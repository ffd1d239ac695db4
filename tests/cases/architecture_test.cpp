// Weights that come to an engine which computes something else with them: what differs is no tensor, so nothing noticed.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CaseModel with_config(const nlohmann::json& config, unsigned seed = 0) {
    CaseModel model;
    model.config = config;
    model.seed = seed;
    return model;
}

class Architecture : public Case {
  protected:
    // tandem-sync push of `model` into the server; other arguments behind.
    Ended push(const std::string& model, const std::string& url,
               const std::vector<std::string>& more = {}) const {
        std::vector<std::string> command = {"tandem-sync", "push", "--model", path(model), "--to", url};
        command.insert(command.end(), more.begin(), more.end());
        return ended(command);
    }
    static std::string tandem_url(const std::string& http) {
        return "tandem" + http.substr(http.find("://"));
    }
    Ended train_with(const std::string& url) const { return ended(train({"engine.url=" + url})); }
};

// A user pushed a long-context fine-tune into the server of the base model: "updated", and wrong answers.
TEST_F(Architecture, AnotherThetaIsRefusedByPushAndByTheRunWithBothValues) {
    write_tiny(path("model"), with_config({{"rope_theta", 1000000.0}}));
    write_tiny(path("served"));
    engine::Program server(serve("served"));
    const std::string url = tandem_url(server.url());
    const auto named = AllOf(HasSubstr("rope_theta"), HasSubstr("1000000.0"), HasSubstr("10000.0"),
                             HasSubstr(url.substr(9)));
    const Ended pushed = push("model", url);
    EXPECT_EQ(pushed.code, 1);
    EXPECT_THAT(pushed.text(), AllOf(named, HasSubstr("FAILED"), Not(HasSubstr("updated"))));
    const Ended tried = push("model", url, {"--dry-run"});
    EXPECT_EQ(tried.code, 1);
    EXPECT_THAT(tried.text(), named);
    const Ended trained = train_with(url);
    EXPECT_EQ(trained.code, 2);
    EXPECT_THAT(trained.text(), AllOf(named, HasSubstr("engine.url")));
    EXPECT_FALSE(std::filesystem::exists(path("runs"))) << "refused before anything was written";
    // Its weights stay, and it serves.
    EXPECT_EQ(ask(server.url(), "GET", "/model_info").json()["weight_version"], "1");
    const auto architecture = ask(server.url(), "GET", "/model_info").json()["tandem"]["architecture"];
    EXPECT_EQ(architecture["rope_theta"], 10000.0);
    EXPECT_EQ(architecture["num_attention_heads"], 4);
    EXPECT_FALSE(architecture.contains("torch_dtype"));
}  // namespace

TEST_F(Architecture, EachKeyThatNoTensorShowsIsNamed) {
    write_tiny(path("served"));
    engine::Program server(serve("served"));
    const std::string url = tandem_url(server.url());
    const std::vector<std::pair<nlohmann::json, std::vector<std::string>>> rows = {
        {{{"rms_norm_eps", 1e-5}}, {"rms_norm_eps", "1e-05", "1e-06"}},
        {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}},
         {"rope_scaling.rope_type", "linear", "default"}},
        {{{"rope_theta", kDrop}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}},
         {"rope_theta", "500000.0", "10000.0"}},
        {{{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"}},
        {{{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}},
         {"rope_scaling.rope_type", "dynamic"}}};
    for (const auto& [keys, words] : rows) {
        SCOPED_TRACE(keys.dump());
        write_tiny(path("model"), with_config(keys));
        const Ended pushed = push("model", url);
        EXPECT_EQ(pushed.code, 1);
        for (const std::string& word : words) EXPECT_THAT(pushed.text(), HasSubstr(word));
    }
}

// The same model in other words; and what is no part of it.
TEST_F(Architecture, OtherSpellingsAndWhatIsNotComparedPass) {
    write_tiny(path("served"));
    engine::Program server(serve("served"));
    const std::string url = tandem_url(server.url());
    const std::vector<nlohmann::json> rows = {
        {{"rope_theta", kDrop}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}}}},
        {{"rope_theta", kDrop}, {"rope_scaling", nullptr}, {"hidden_act", kDrop}, {"architectures", nullptr}},
        {{"max_position_embeddings", 2048},
         {"eos_token_id", {2, 0}},
         {"rope_scaling", {{"type", "linear"}, {"factor", 1}}}}};
    for (const nlohmann::json& keys : rows) {
        SCOPED_TRACE(keys.dump());
        write_tiny(path("model"), with_config(keys, 1));
        const Ended pushed = push("model", url, {"--json"});
        EXPECT_EQ(pushed.code, 0) << pushed.text();
        EXPECT_EQ(nlohmann::json::parse(pushed.out)["servers"][0]["architecture"], "equal");
    }
    EXPECT_THAT(push("model", url).out, AllOf(HasSubstr("updated"), Not(HasSubstr("not compared"))));
}

// A user's script had written num_attention_heads of another model.
TEST_F(Architecture, AConfigThatDoesNotFitItsOwnTensorsIsRefusedByAll) {
    write_tiny(path("model"),
               with_config({{"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 16}}));
    write_tiny(path("served"));
    engine::Program server(serve("served"));
    const auto named = AllOf(HasSubstr("self_attn"), HasSubstr("has shape [8], config.json implies [16]"),
                             HasSubstr("head_dim 16"));
    const Ended pushed = push("model", tandem_url(server.url()));
    EXPECT_EQ(pushed.code, 2);
    EXPECT_THAT(pushed.text(), named);
    const Ended trained = train_with(server.url());
    EXPECT_EQ(trained.code, 2);
    EXPECT_THAT(trained.text(), named);
    engine::Program refused(serve("model"));
    EXPECT_EQ(refused.wait(), 2);
    EXPECT_THAT(refused.output(), named);
}

// A Llama shows no head's width in any tensor: 2 heads of 8 and 4 of 4 have the same shapes.
TEST_F(Architecture, HeadsOfOneProductAreToldApart) {
    const std::vector<std::string> words = {"a", "b", "<|im_end|>", "x"};
    write_chain(path("served"), words);
    write_chain(path("model"), words);
    nlohmann::json heads = {{"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 4}};
    change_json(path("model") + "/config.json", heads);
    engine::Program server(serve("served"));
    const Ended pushed = push("model", tandem_url(server.url()));
    EXPECT_EQ(pushed.code, 1);
    EXPECT_THAT(pushed.text(),
                AllOf(HasSubstr("num_attention_heads"), HasSubstr("head_dim"), HasSubstr("FAILED")));
}

TEST_F(Architecture, AReferenceOfAnotherModelIsRefused) {
    write_tiny(path("model"));
    write_tiny(path("reference"), with_config({{"rms_norm_eps", 1e-5}}));
    const Ended run = ended(train({"loss.kl_coef=0.1", "loss.reference=" + path("reference")}));
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.text(), AllOf(HasSubstr("loss.reference"), HasSubstr("rms_norm_eps"), HasSubstr("1e-06"),
                                  HasSubstr("1e-05")));
}

// Between a run and its --resume the model's directory was edited.
TEST_F(Architecture, AResumeOfAnotherModelIsRefused) {
    write_tiny(path("model"));
    const Ended first = ended(train({"checkpoint.every=1", "grpo.steps=1"}));
    ASSERT_EQ(first.code, 0) << first.text();
    change_json(path("model") + "/config.json", {{"rope_theta", 500.0}});
    const Ended second = ended(train({"checkpoint.every=1", "grpo.steps=2"}, {"--resume"}));
    EXPECT_EQ(second.code, 2);
    EXPECT_THAT(second.text(), HasSubstr("rope_theta: it was 10000.0, it is 500.0"));
    change_json(
        path("model") + "/config.json",
        {{"rope_theta", nullptr}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}}}});
    const Ended third = ended(train({"checkpoint.every=1", "grpo.steps=2"}, {"--resume"}));
    EXPECT_EQ(third.code, 0) << third.text();
}

// The engine was started on a directory with a shorter context: its requests failed at the first long prompt.
TEST_F(Architecture, AnEngineThatTakesTooFewTokensIsRefusedAtTheStart) {
    write_tiny(path("model"));
    write_tiny(path("served"), with_config({{"max_position_embeddings", 8}}));
    engine::Program server(serve("served"));
    const Ended trained = train_with(server.url());
    EXPECT_EQ(trained.code, 2);
    EXPECT_THAT(trained.text(),
                AllOf(HasSubstr("engine.url"), HasSubstr("takes 8 tokens"), HasSubstr("max_new_tokens 6")));
}

TEST_F(Architecture, AServerOfAnotherDtypeIsToldAndPushed) {
    write_tiny(path("model"));
    engine::Program server(serve("model", {"--dtype", "bfloat16"}));
    const Ended pushed = push("model", tandem_url(server.url()));
    EXPECT_EQ(pushed.code, 0) << pushed.text();
    EXPECT_THAT(pushed.err, HasSubstr("the weights are cast from float32 to bfloat16"));
}

TEST_F(Architecture, AnEngineOfAnotherDtypeIsToldOnceAndTrained) {
    write_tiny(path("model"));
    const Ended trained = ended(train({"train.compute_dtype=bf16", "grpo.steps=1"}));
    EXPECT_EQ(trained.code, 0) << trained.text();
    EXPECT_THAT(trained.text(), AllOf(HasSubstr("train.compute_dtype"), HasSubstr("engine.dtype"),
                                      HasSubstr("bfloat16"), HasSubstr("float32")));
}

}  // namespace
}  // namespace tandem::test
