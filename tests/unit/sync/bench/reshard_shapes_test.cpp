// Shapes by name and from files, and plans of whole models: counts, not times.
#include <gmock/gmock.h>

#include <set>

#include "common/error.h"
#include "common/model/parameters.h"
#include "sync/bench/plan_report.h"
#include "sync/bench/shapes.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

const std::string kTrillion = std::string(TANDEM_SOURCE_DIR) + "/examples/shapes/moe-1t-61x384.json";

std::int64_t parameters(const std::vector<model::ParameterSpec>& model) {
    std::int64_t count = 0;
    for (const model::ParameterSpec& tensor : model) count += numel(tensor.shape);
    return count;
}

TEST(Shapes, NamedDenseModelsAreTheTrainers) {
    for (const char* name :
         {"tiny", "SmolLM2-135M", "Qwen2.5-0.5B", "Llama-3.2-1B", "Qwen3-0.6B", "Qwen3-4B", "Llama-3.1-8B"}) {
        const auto specs = model::parameter_specs(model_by_name(name));
        const auto tensors = model_tensors(std::string(name));
        ASSERT_EQ(tensors.size(), specs.size()) << name;
        for (std::size_t i = 0; i < specs.size(); ++i) {
            EXPECT_EQ(tensors[i].name, specs[i].name);
            EXPECT_EQ(tensors[i].shape, specs[i].shape);
        }
    }
}

TEST(Shapes, MixtureOfExpertsThatFitsOneMachine) {
    const auto tensors = model_tensors(std::string("Qwen3-MoE-1B"));
    EXPECT_GT(parameters(tensors) * 2, 1'000'000'000);
    EXPECT_LT(parameters(tensors) * 2, 2'000'000'000);
    std::set<std::string> names;
    for (const model::ParameterSpec& tensor : tensors) names.insert(tensor.name);
    EXPECT_EQ(names.size(), tensors.size());
    EXPECT_TRUE(names.count("model.layers.11.mlp.experts.31.down_proj.weight"));
    EXPECT_TRUE(names.count("model.layers.0.mlp.gate.weight"));
    EXPECT_THROW(model_by_name("Qwen3-MoE-1B"), InvalidArgument);
}

TEST(Shapes, AllNamedModelsReshard) {
    for (const std::string& name : shape_names()) {
        PlanReportOptions options;
        options.shapes = name;
        options.mesh = {2, 2};
        const auto report = plan_report(options);
        EXPECT_EQ(report.at("bytes").get<std::int64_t>(), 2 * parameters(model_tensors(name))) << name;
        EXPECT_LT(report.at("balance").get<double>(), 1.01) << name;
    }
}

TEST(Shapes, FileOfConfigKeysAndOfTensors) {
    const auto named = model_tensors(std::string("Qwen3-0.6B"));
    const auto read =
        read_model_shapes(
            R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
            "tie_word_embeddings": true, "num_experts": null})",
            "f")
            .tensors;
    ASSERT_EQ(read.size(), named.size());
    for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].shape, named[i].shape);

    const auto listed =
        read_model_shapes(
            R"({"tensors": [{"name": "a.k_proj.weight", "shape": [8, 4], "parallel": "column", "heads": 2},
                        {"name": "b", "shape": []}]})",
            "f")
            .tensors;
    ASSERT_EQ(listed.size(), 2u);
    EXPECT_EQ(listed[0].shape, (Shape{8, 4}));
    EXPECT_EQ(listed[0].cut, model::Cut::column);
    EXPECT_EQ(listed[0].heads, 2);
    EXPECT_EQ(listed[1].cut, model::Cut::replicate);
}

TEST(Shapes, BiasesOfTheFamilies) {
    const auto biases = [](const std::string& keys) {
        const std::string sizes = R"({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "vocab_size": 8, )";
        std::vector<std::string> names;
        for (const model::ParameterSpec& tensor : read_model_shapes(sizes + keys + "}", "f").tensors)
            if (tensor.name.ends_with(".bias")) names.push_back(tensor.name.substr(15));
        return names;
    };
    using testing::ElementsAre;
    EXPECT_THAT(biases(R"("model_type": "qwen3")"), ElementsAre());
    // Keys that a family's code does not look at say nothing, as in config.json.
    EXPECT_THAT(biases(R"("model_type": "qwen3", "mlp_bias": true)"), ElementsAre());
    EXPECT_THAT(biases(R"("model_type": "qwen2", "attention_bias": false, "mlp_bias": true)"),
                ElementsAre("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"));
    EXPECT_THAT(biases(R"("model_type": "qwen2")"),
                ElementsAre("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"));
    EXPECT_THAT(
        biases(R"("model_type": "llama", "attention_bias": true, "mlp_bias": true)"),
        ElementsAre("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                    "self_attn.o_proj.bias", "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"));
}

std::string refusal(const std::string& text) {
    try {
        read_model_shapes(text, "shapes.json").tensors;
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Shapes, ErrorsNameFileAndKey) {
    EXPECT_THAT(refusal("{"), HasSubstr("shapes.json: is not valid JSON at line 1, column 1"));
    EXPECT_EQ(refusal("[]"), "shapes.json: must be a JSON object");
    EXPECT_EQ(refusal("{}"), "shapes.json: vocab_size: missing");
    EXPECT_EQ(refusal(R"({"vocab_size": "x"})"), "shapes.json: vocab_size: must be a size");
    EXPECT_EQ(refusal(R"({"vocab_size": 0})"), "shapes.json: vocab_size: must be positive");
    const std::string sizes =
        R"({"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 3)";
    EXPECT_EQ(refusal(sizes + "}"), "shapes.json: intermediate_size: missing");
    EXPECT_THAT(refusal(sizes + R"(, "intermediate_size": 8})"), HasSubstr("shapes.json: head_dim: missing"));
    EXPECT_EQ(refusal(sizes + R"(, "num_experts": 4})"), "shapes.json: moe_intermediate_size: missing");
    EXPECT_EQ(refusal(sizes + R"(, "intermediate_size": 8, "kv_lora_rank": 4})"),
              "shapes.json: qk_rope_head_dim: missing");
    EXPECT_EQ(refusal(sizes + R"(, "tie_word_embeddings": 1})"),
              "shapes.json: tie_word_embeddings: must be true or false");
    EXPECT_EQ(refusal(R"({"tensors": 1})"), "shapes.json: tensors: must be a list");
    EXPECT_EQ(refusal(R"({"tensors": [1]})"), "shapes.json: tensors[0]: must be an object");
    EXPECT_EQ(refusal(R"({"tensors": [{"name": "a"}]})"),
              "shapes.json: tensors[0].shape: must be a list of sizes");
    EXPECT_EQ(refusal(R"({"tensors": [{"name": "a", "shape": [1], "parallel": "x"}]})"),
              "shapes.json: tensors[0].parallel: must be replicate, column, row, expert or vocabulary");
    EXPECT_THROW(model_tensors(std::string("no-such-model")), InvalidArgument);
}

// ------------------------------------------------------------------------------------------- a trillion

PlanReportOptions trillion() {
    PlanReportOptions options;
    options.shapes = kTrillion;
    options.mesh = {256};
    options.engine = {8, 128, true};
    options.source_dtype = DType::float32;
    return options;
}

// Whatever the trainer's layout: every expert once, the rest of the model on 16 replicas.
void check_trillion(const nlohmann::json& report) {
    EXPECT_NEAR(report.at("parameters").get<double>(), 1.0e12, 0.03e12);
    EXPECT_EQ(report.at("engine_ranks").get<int>(), 128);
    const double experts = 60.0 * 384 * 3 * 2048 * 7168 * 2;
    EXPECT_GT(report.at("bytes").get<double>(), experts);
    EXPECT_EQ(report.at("bytes_to").at("min"), report.at("bytes_to").at("max"));
    EXPECT_LT(report.at("patterns").get<int>(), 1000);
    EXPECT_LT(report.at("balance").get<double>(), 1.02);
}

TEST(ReshardTrillion, ShardedOverAllRanks) {
    const auto report = plan_report(trillion());
    check_trillion(report);
    EXPECT_GT(report.at("moves").get<std::uint64_t>(), 60u * 384 * 3 * 256);  // every expert from all ranks
    EXPECT_GT(report.at("bytes_from").at("min").get<double>(),
              0.95 * report.at("bytes_from").at("mean").get<double>());
}

TEST(ReshardTrillion, ExpertsOnFourRanksEach) {
    auto options = trillion();
    options.expert_mesh = {64, 4};
    const auto spread = plan_report(trillion());
    const auto report = plan_report(options);
    check_trillion(report);
    EXPECT_EQ(spread.at("moves").get<std::uint64_t>() - report.at("moves").get<std::uint64_t>(),
              60u * 384 * 3 * (256 - 4));
    EXPECT_EQ(spread.at("bytes"), report.at("bytes"));
}

TEST(ReshardTrillion, ReplicasOfShards) {
    auto options = trillion();
    options.mesh = {2, 128};
    check_trillion(plan_report(options));
    options.expert_mesh = {32, 4};  // and two replicas of each expert's group
    check_trillion(plan_report(options));
}

TEST(PlanCommand, RefusesBadOptions) {
    const auto refuse = [](auto change, const char* option) {
        PlanReportOptions options;
        change(options);
        try {
            options.validate();
            ADD_FAILURE() << "accepted: " << option;
        } catch (const ConfigError& error) {
            EXPECT_EQ(error.key(), option);
        }
    };
    refuse([](auto& o) { o.mesh = {}; }, "--mesh");
    refuse([](auto& o) { o.mesh = {2, 0}; }, "--mesh");
    refuse([](auto& o) { o.mesh = {100000, 100000}; }, "--mesh");
    refuse([](auto& o) { o.placements = "S(0),R"; }, "--placements");
    refuse([](auto& o) { o.placements = "X"; }, "--placements");
    refuse([](auto& o) { o.expert_mesh = {4}; }, "--expert-mesh");
    refuse([](auto& o) { o.expert_mesh = {3, 2}; }, "--expert-mesh");
    refuse([](auto& o) { o.engine.tp = 0; }, "--engine-tp, --engine-ep");
    refuse([](auto& o) { o.engine = {4, 6, true}; }, "--engine-tp, --engine-ep");
}

TEST(PlanCommand, TableFitsATerminal) {
    PlanReportOptions options;
    options.shapes = "Qwen3-MoE-1B";
    options.mesh = {2, 4};
    options.expert_mesh = {4, 2};
    options.engine = {2, 4, true};
    const std::string table = plan_table(plan_report(options));
    EXPECT_THAT(table, HasSubstr("trainer: 8 ranks, mesh 2,4 [R, S(0)], bfloat16, experts on 4,2"));
    EXPECT_THAT(table, HasSubstr("engine: 4 ranks, tp 2, ep 4, bfloat16, fused"));
    std::size_t width = 0;
    for (const char c : table) {
        width = c == '\n' ? 0 : width + 1;
        ASSERT_LE(width, 100u) << table;
    }
}

}  // namespace
}  // namespace tandem::sync
