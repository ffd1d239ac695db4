// Meshes by size and by name, and what they make of a model.
#include "sync/bench/trainer_mesh.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>

#include "common/dtensor/layout.h"
#include "common/error.h"
#include "sync/bench/plan_report.h"
#include "tests/support/error_of.h"
#include "tests/unit/sync/plan/reshard_oracle.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

TEST(TrainerMesh, FormsThatAreRead) {
    for (const char* text :
         {"4", "2,1", "dp=2,tp=2", "tp=4", "dp=4,dp_replicate=2,cp=2,tp=3", "dp=2,tp=2,pp=3"}) {
        const TrainerMesh mesh = TrainerMesh::parse(text);
        EXPECT_EQ(mesh.text(), text);
        EXPECT_EQ(TrainerMesh::parse(mesh_text(mesh.json())).ranks(), mesh.ranks()) << text;
    }
    EXPECT_EQ(TrainerMesh::parse("2,3").ranks(), 6);
    EXPECT_EQ(TrainerMesh::parse("dp=4,dp_replicate=2,cp=2,tp=3").ranks(), 24);  // dp includes dp_replicate
    EXPECT_EQ(TrainerMesh::parse("dp=2,tp=2,pp=3").ranks(), 12);
    EXPECT_EQ(TrainerMesh::parse("tp=2").json(), (nlohmann::json{{"tp", 2}}));
}

TEST(TrainerMesh, FormsThatAreRefused) {
    const std::pair<const char*, const char*> table[] = {
        {"", "'' is no size"},
        {"2,", "'' is no size"},
        {"2,x", "'x' is no size"},
        {"2,tp=2", "every one with its axis"},
        {"tp=2,2", "every one with its axis"},
        {"ep=2", "no axis 'ep'; there are dp, dp_replicate, cp, tp, pp"},
        {"pp=0", "must be positive"},
        {"tp=2,tp=2", "axis tp twice"},
        {"tp=", "'' is no size"},
        {"tp=0", "must be positive"},
        {"tp=99999999999", "is no size"},
        {"dp=3,dp_replicate=2", "dp_replicate 2 does not divide dp 3"}};
    for (const auto& [text, why] : table)
        EXPECT_THAT(test::error_of([&] { TrainerMesh::parse(text); }), HasSubstr(why)) << text;
}

// What the trainer holds, also where nothing divides: rows of a vocabulary over tp 4, then fsdp 8. common/sharding's tests
// have the rest.
TEST(TrainerMesh, TensorsThatAreCutAlikeShareAMesh) {
    const TrainerMesh mesh = TrainerMesh::parse("dp=8,tp=4");
    const auto model = read_model_shapes(R"({"tensors": [
        {"name": "table", "shape": [50257, 4], "parallel": "vocabulary"},
        {"name": "q", "shape": [8, 4], "parallel": "column", "heads": 4},
        {"name": "layers.0.self_attn.k_proj.weight", "shape": [4, 4], "parallel": "column", "heads": 2},
        {"name": "o", "shape": [4, 8], "parallel": "row"},
        {"name": "norm", "shape": [4]}, {"name": "more", "shape": [4]}, {"name": "one", "shape": []}]})",
                                         "f");
    mesh.check_fits(model);
    const Holdings held = holdings_of(mesh.abstract(), model.tensors);
    EXPECT_THAT(held.kind_of, testing::ElementsAre(0, 0, 1, 2, 3, 3, 4));
    EXPECT_EQ(to_string(held.of(2).placements), "[R, S(0), R, S(0)]");
    EXPECT_EQ(to_string(held.of(6).placements), "[R, R, R]");
    const auto& [all, placements] = held.of(0);
    EXPECT_EQ(all.names(), (std::vector<std::string>{"dp_replicate", "tp", "fsdp"}));
    std::int64_t end = 0;  // rows by tp, and in that by fsdp, are whole and in order
    for (const int rank : all.ranks()) {
        const LocalLayout layout =
            local_layout(model.tensors[0].shape, all.sizes(), placements, all.coordinates_of(rank));
        EXPECT_EQ(layout.offsets[0], end);
        end += layout.shape[0];
        const bool last = rank / 4 == 7;
        EXPECT_EQ(layout.shape[0], !last ? 1571 : rank % 4 < 3 ? 1568 : 1565) << rank;
    }
    EXPECT_EQ(end, 50257);
}

// Of 9 rows tp rank 1 has 4, and each of its fsdp ranks one: a strided shard on (fsdp, tp) cannot say that.
TEST(TrainerMesh, RowsThatNoStridedShardDescribes) {
    const auto model =
        read_model_shapes(R"({"tensors": [{"name": "t", "shape": [9, 2], "parallel": "vocabulary"}]})", "f");
    const Holdings held = holdings_of(TrainerMesh::parse("dp=4,tp=2").abstract(), model.tensors);
    const auto& [all, placements] = held.of(0);
    std::vector<std::int64_t> rows;
    for (int rank = 0; rank < 8; ++rank)
        rows.push_back(local_shape({9, 2}, all.sizes(), placements, all.coordinates_of(rank))[0]);
    EXPECT_THAT(rows, testing::ElementsAre(2, 1, 2, 1, 1, 1, 0, 1));
}

TEST(TrainerMesh, PlansKnowNames) {
    PlanReportOptions options;
    options.shapes = "SmolLM2-135M";
    options.engine.tp = 3;
    for (const char* mesh :
         {"dp=2,tp=3", "tp=9", "dp=4,dp_replicate=2,cp=2,tp=3", "dp=2,tp=3,pp=4", "pp=32"}) {
        options.mesh = TrainerMesh::parse(mesh);
        const nlohmann::json report = plan_report(options);
        EXPECT_EQ(report.at("source_ranks"), options.mesh.ranks());
        EXPECT_THAT(plan_table(report),
                    HasSubstr(fmt::format("mesh {} by name", mesh_text(options.mesh.json()))));
    }
    options.mesh = TrainerMesh::parse("tp=2");
    EXPECT_THAT(
        test::error_of([&] { plan_report(options); }),
        HasSubstr(
            "--mesh: tensor parallelism 2 does not fit 9 query heads and 3 key and value heads; 1, 3, 9 do"));
    const auto listed = read_model_shapes(
        R"({"tensors": [{"name": "a", "shape": [9, 4], "parallel": "column", "heads": 9}]})", "f");
    EXPECT_THAT(test::error_of([&] { options.mesh.check_fits(listed); }),
                HasSubstr("tensor 'a': 9 heads do not divide by tensor parallelism 2"));
    options.placements = "R";
    EXPECT_THROW(options.validate(), ConfigError);
}

// --- stages

// The stage of each of: the embedding, the layers, the head. A stage has as many as any other, the first ones one more.
std::vector<int> stage_of_each(int layers, int stages) {
    std::vector<int> result;
    for (int stage = 0; stage < stages; ++stage) {
        const int count = (layers + 2) / stages + (stage < (layers + 2) % stages ? 1 : 0);
        result.insert(result.end(), static_cast<std::size_t>(count), stage);
    }
    return result;
}

// [dim]: the indices that a rank has; nothing where the tensor is none of its stage's.
std::optional<std::vector<Ids>> naive(const ParallelDegrees& d, int rank, const model::DecoderSizes& sizes,
                                      const model::ParameterSpec& tensor) {
    const int fsdp = d.dp_shard * d.cp, tp_rank = rank % d.tp, fsdp_rank = rank / d.tp % fsdp;
    const int stage = rank / (d.tp * fsdp * d.dp_replicate);
    const std::vector<int> stages = stage_of_each(static_cast<int>(sizes.num_hidden_layers), d.pp);
    const bool table = tensor.name == model::kEmbedding;
    const int home = table              ? stages.front()
                     : tensor.layer < 0 ? stages.back()
                                        : stages[static_cast<std::size_t>(tensor.layer) + 1];
    if (home != stage && !(table && sizes.tie_word_embeddings && stage == stages.back())) return {};
    std::vector<Ids> dims;
    for (const std::int64_t n : tensor.shape) {
        dims.emplace_back(static_cast<std::size_t>(n));
        std::iota(dims.back().begin(), dims.back().end(), 0);
    }
    const bool rows = tensor.cut == model::Cut::column || tensor.cut == model::Cut::vocabulary;
    const bool copies = rows && tensor.heads > 0 && tensor.heads < d.tp;
    if (copies) dims[0] = chunk_of(dims[0], tensor.heads, tp_rank / (d.tp / tensor.heads));
    if (rows && !copies) dims[0] = chunk_of(dims[0], d.tp, tp_rank);
    if (tensor.cut == model::Cut::row) dims[1] = chunk_of(dims[1], d.tp, tp_rank);
    dims[0] = chunk_of(dims[0], fsdp, fsdp_rank);
    return dims;
}

std::vector<Ids> indices_of(const Holding& holding, const Shape& shape, int rank) {
    const LocalLayout layout =
        local_layout(shape, holding.mesh.sizes(), holding.placements, holding.mesh.coordinates_of(rank));
    std::vector<Ids> dims;
    for (const auto& runs : layout.runs) {
        Ids& ids = dims.emplace_back();
        for (const auto& [begin, end] : runs) {
            for (std::int64_t i = begin; i < end; ++i) ids.push_back(i);
        }
    }
    return dims;
}

void mark(const std::vector<Ids>& dims, const Shape& shape, std::vector<bool>& held) {
    for (const std::int64_t row : dims[0]) {
        if (shape.size() == 1) held[static_cast<std::size_t>(row)] = true;
        for (const std::int64_t column : shape.size() == 1 ? Ids{} : dims[1])
            held[static_cast<std::size_t>(row * shape[1] + column)] = true;
    }
}

struct Drawn {
    model::DecoderSizes sizes;
    TrainerMesh mesh;
};

Drawn drawn(std::mt19937& random) {
    const auto one_of = [&](std::initializer_list<int> list) { return list.begin()[random() % list.size()]; };
    Drawn result;
    model::DecoderSizes& sizes = result.sizes;
    sizes.vocab_size = one_of({7, 13, 17});
    sizes.hidden_size = one_of({5, 10});
    sizes.intermediate_size = 9;
    sizes.num_hidden_layers = one_of({1, 2, 5, 9});
    sizes.num_key_value_heads = one_of({1, 2, 4});
    sizes.num_attention_heads = 8;
    sizes.head_dim = 2;
    sizes.tie_word_embeddings = random() % 2 == 0;
    sizes.qk_norm = random() % 2 == 0;
    sizes.qkv_bias = sizes.o_bias = sizes.mlp_bias = random() % 2 == 0;
    int dp, copies, cp, tp, pp;
    do {
        dp = one_of({1, 2, 3, 4}), copies = one_of({1, 2}), cp = one_of({1, 2}), tp = one_of({1, 2, 4});
        pp = one_of({1, 2, 2, 3, 4, 5, 8});
    } while (dp * cp * tp * pp > 8 || dp % copies != 0 || pp > sizes.num_hidden_layers + 2);
    result.mesh =
        TrainerMesh::parse(fmt::format("dp={},dp_replicate={},cp={},tp={},pp={}", dp, copies, cp, tp, pp));
    return result;
}

// What each rank has of each tensor, element by element against another arithmetic; and that some rank has each element.
void expect_held(const Drawn& one) {
    const std::vector<model::ParameterSpec> model = model::parameter_specs(one.sizes);
    one.mesh.check_fits({model, one.sizes});
    const Holdings all = all_holdings(one.mesh, model);
    std::vector<std::vector<bool>> held;
    for (const model::ParameterSpec& tensor : model)
        held.emplace_back(static_cast<std::size_t>(numel(tensor.shape)));
    for (int rank = 0; rank < one.mesh.ranks(); ++rank) {
        const Holdings here = holdings_of(one.mesh.abstract(rank), model);
        for (std::size_t i = 0; i < model.size(); ++i) {
            const auto expected = naive(one.mesh.degrees(), rank, one.sizes, model[i]);
            const std::vector<int>& ranks = all.of(i).mesh.ranks();
            ASSERT_EQ(here.has(i), expected.has_value()) << model[i].name << " on rank " << rank;
            ASSERT_EQ(std::count(ranks.begin(), ranks.end(), rank), here.has(i) ? 1 : 0) << model[i].name;
            if (!expected) continue;
            EXPECT_EQ(indices_of(here.of(i), model[i].shape, rank), *expected) << model[i].name;
            EXPECT_EQ(indices_of(all.of(i), model[i].shape, rank), *expected) << model[i].name;
            EXPECT_EQ(here.of(i).mesh.ranks(), ranks) << model[i].name;
            mark(*expected, model[i].shape, held[i]);
        }
    }
    for (std::size_t i = 0; i < model.size(); ++i)
        EXPECT_EQ(std::count(held[i].begin(), held[i].end(), false), 0) << model[i].name;
}

TEST(TrainerMesh, DrawnMeshesHoldEveryElement) {
    std::mt19937 random(5);
    for (int i = 0; i < 400; ++i) {
        const Drawn one = drawn(random);
        SCOPED_TRACE(fmt::format("{} of {} layers{}", one.mesh.text(), one.sizes.num_hidden_layers,
                                 one.sizes.tie_word_embeddings ? ", tied" : ""));
        expect_held(one);
        if (HasFailure()) return;
    }
}

// One group for the two stages that have it, and each byte once from one of them.
TEST(TrainerMesh, ATiedTableLiesOnTheFirstAndOnTheLastStage) {
    PlanReportOptions options;
    options.shapes = "tiny";
    options.mesh = TrainerMesh::parse("dp=2,tp=2,pp=3");
    const auto model = model_tensors("tiny");
    const SourceLayout layout = trainer_layout(model, options);
    const auto ranks_of = [&](std::size_t tensor) {
        EXPECT_EQ(layout.tensors[tensor].groups.size(), 1u);
        return layout.groups[static_cast<std::size_t>(layout.tensors[tensor].groups[0])].ranks;
    };
    EXPECT_EQ(model[0].name, model::kEmbedding);
    EXPECT_THAT(ranks_of(0), testing::UnorderedElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
    EXPECT_EQ(model[1].layer, 0);
    EXPECT_THAT(ranks_of(1), testing::UnorderedElementsAre(0, 1, 2, 3));
    EXPECT_THAT(ranks_of(model.size() - 1), testing::UnorderedElementsAre(8, 9, 10, 11));  // the last norm
    std::int64_t elements = 0;
    for (const model::ParameterSpec& tensor : model) elements += numel(tensor.shape);
    EXPECT_EQ(plan_report(options).at("bytes").get<std::int64_t>(), 2 * elements);
}

TEST(TrainerMesh, ExpertsLieInTheirStage) {
    PlanReportOptions options;
    options.shapes = "Qwen3-MoE-1B";
    options.mesh = TrainerMesh::parse("dp=8,pp=2");
    options.expert_mesh = {4, 2};
    plan_report(options);
    const auto model = model_tensors(options.shapes);
    const SourceLayout layout = trainer_layout(model, options);
    for (std::size_t i = 0; i < model.size(); ++i) {
        if (model[i].expert < 0) continue;
        const int begin = (model[i].layer < 6 ? 0 : 8) + static_cast<int>(model[i].expert) / 8 * 2;
        ASSERT_EQ(layout.tensors[i].groups.size(), 1u);
        EXPECT_THAT(layout.groups[static_cast<std::size_t>(layout.tensors[i].groups[0])].ranks,
                    testing::ElementsAre(begin, begin + 1))
            << model[i].name;
    }
    options.expert_mesh = {4, 4};
    EXPECT_THAT(test::error_of([&] { options.validate(); }),
                HasSubstr("--expert-mesh: 8 ranks of a stage do not divide by 16"));
}

TEST(TrainerMesh, StagesThatDoNotFit) {
    PlanReportOptions options;
    options.shapes = "SmolLM2-135M";
    options.mesh = TrainerMesh::parse("pp=33");
    EXPECT_THAT(test::error_of([&] { options.validate(); }),
                HasSubstr("--mesh: 33 stages for 30 layers, with the embedding as 1 and the head as 1 of "
                          "them; at most 32 fit"));
    const auto refusal = [](const char* names) {
        std::string tensors;
        for (const char name : std::string(names))
            tensors +=
                fmt::format(R"({}{{"name": "{}.weight", "shape": [4]}})", tensors.empty() ? "" : ",",
                            name == 'n' ? "model.norm" : fmt::format("model.layers.{}.mlp.gate", name));
        const auto model = read_model_shapes(fmt::format(R"({{"tensors": [{}]}})", tensors), "f");
        return test::error_of([&] { TrainerMesh::parse("pp=2").check_fits(model); });
    };
    EXPECT_EQ(refusal("01n"), "");
    EXPECT_THAT(refusal("n"), HasSubstr("no tensor's name has a layer"));
    EXPECT_THAT(refusal("02n"), HasSubstr("no tensor is of layer 1, and one is of layer 2"));
}

}  // namespace
}  // namespace tandem::sync
