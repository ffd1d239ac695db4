// Meshes by size and by name, and what they make of a model.
#include "sync/bench/trainer_mesh.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/dtensor/layout.h"
#include "common/error.h"
#include "sync/bench/plan_report.h"
#include "tests/support/error_of.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

TEST(TrainerMesh, FormsThatAreRead) {
    for (const char* text : {"4", "2,1", "dp=2,tp=2", "tp=4", "dp=4,dp_replicate=2,cp=2,tp=3"}) {
        const TrainerMesh mesh = TrainerMesh::parse(text);
        EXPECT_EQ(mesh.text(), text);
        EXPECT_EQ(TrainerMesh::parse(mesh_text(mesh.json())).ranks(), mesh.ranks()) << text;
    }
    EXPECT_EQ(TrainerMesh::parse("2,3").ranks(), 6);
    EXPECT_EQ(TrainerMesh::parse("dp=4,dp_replicate=2,cp=2,tp=3").ranks(), 24);  // dp includes dp_replicate
    EXPECT_EQ(TrainerMesh::parse("tp=2").json(), (nlohmann::json{{"tp", 2}}));
}

TEST(TrainerMesh, FormsThatAreRefused) {
    const std::pair<const char*, const char*> table[] = {
        {"", "'' is no size"},
        {"2,", "'' is no size"},
        {"2,x", "'x' is no size"},
        {"2,tp=2", "every one with its axis"},
        {"tp=2,2", "every one with its axis"},
        {"pp=2", "no axis 'pp'"},
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
    for (const char* mesh : {"dp=2,tp=3", "tp=9", "dp=4,dp_replicate=2,cp=2,tp=3"}) {
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

}  // namespace
}  // namespace tandem::sync
