// Meshes by size and by name, and what each rank of a named one holds: tensor parallelism first, then FSDP over its piece.
#include "sync/bench/trainer_mesh.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/dtensor/layout.h"
#include "common/error.h"
#include "sync/bench/plan_report.h"
#include "tests/support/error_of.h"
#include "tests/unit/sync/plan/reshard_oracle.h"

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

model::DecoderSizes sizes(std::int64_t heads, std::int64_t kv_heads) {
    model::DecoderSizes s;
    s.vocab_size = 48;
    s.hidden_size = 24;
    s.intermediate_size = 36;
    s.num_hidden_layers = 1;
    s.num_attention_heads = heads;
    s.num_key_value_heads = kv_heads;
    s.head_dim = 6;
    s.tie_word_embeddings = false;
    s.qkv_bias = s.o_bias = s.mlp_bias = true;
    return s;
}

// The indices of dim 0 and of the cut dim that a rank holds, worked out the way that it comes about.
std::vector<Ids> naive(const model::ParameterSpec& spec, const ParallelDegrees& d, int fsdp_rank,
                       int tp_rank) {
    std::vector<Ids> dims;
    for (const std::int64_t n : spec.shape) {
        dims.emplace_back(static_cast<std::size_t>(n));
        std::iota(dims.back().begin(), dims.back().end(), 0);
    }
    const bool rows = spec.cut == model::Cut::column || spec.cut == model::Cut::vocabulary;
    const bool shared = rows && spec.heads > 0 && spec.heads < d.tp;
    if (rows && !shared) dims[0] = chunk_of(dims[0], d.tp, tp_rank);
    if (shared) dims[0] = chunk_of(dims[0], spec.heads, tp_rank / (d.tp / spec.heads));
    if (spec.cut == model::Cut::row) dims[1] = chunk_of(dims[1], d.tp, tp_rank);
    dims[0] = chunk_of(dims[0], d.dp_shard * d.cp, fsdp_rank);
    return dims;
}

TEST(TrainerMesh, RanksHoldWhatTensorParallelismAndThenFsdpLeaveThem) {
    for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {4, 2}, {4, 1}, {6, 3}}) {
        for (const ParallelDegrees& d :
             std::vector<ParallelDegrees>{{.dp_shard = 2, .tp = 2},
                                          {.dp_shard = 1, .tp = 4},
                                          {.dp_replicate = 2, .dp_shard = 3, .tp = 2},
                                          {.dp_shard = 2, .cp = 2, .tp = 2},
                                          {.dp_shard = 3, .tp = 6}}) {
            if (heads % d.tp != 0 || (kv_heads % d.tp != 0 && d.tp % kv_heads != 0)) continue;
            for (const model::ParameterSpec& spec : model::parameter_specs(sizes(heads, kv_heads))) {
                const Holding held = holding_of(d, spec);
                const int fsdp = d.dp_shard * d.cp;
                for (int rank = 0; rank < d.dp_replicate * fsdp * d.tp; ++rank) {
                    const int tp_rank = rank % d.tp, fsdp_rank = rank / d.tp % fsdp;
                    std::vector<int> at{rank / d.tp / fsdp, fsdp_rank, tp_rank};
                    if (held.sizes.size() == 4)
                        at = {at[0], at[1], tp_rank / held.sizes[3], tp_rank % held.sizes[3]};
                    const LocalLayout layout = local_layout(spec.shape, held.sizes, held.placements, at);
                    std::vector<Ids> held_here;
                    for (const auto& runs : layout.runs) {
                        Ids& ids = held_here.emplace_back();
                        for (const auto& [begin, end] : runs)
                            for (std::int64_t i = begin; i < end; ++i) ids.push_back(i);
                    }
                    ASSERT_EQ(held_here, naive(spec, d, fsdp_rank, tp_rank))
                        << spec.name << " tp " << d.tp << " fsdp " << fsdp << " rank " << rank;
                }
            }
        }
    }
}

TEST(TrainerMesh, QueryHeadsThatDoNotDivideAreNamed) {
    const auto refusal = [](const model::DecoderSizes& of, int tp) {
        return test::error_of([&] {
            for (const auto& spec : model::parameter_specs(of)) holding_of({.dp_shard = 1, .tp = tp}, spec);
        });
    };
    EXPECT_THAT(
        refusal(sizes(9, 3), 2),
        HasSubstr("'model.layers.0.self_attn.q_proj.weight': 9 heads do not divide by tensor parallelism 2"));
    EXPECT_EQ(refusal(sizes(9, 3), 3), "");
    EXPECT_THAT(refusal(sizes(8, 6), 4), HasSubstr("k_proj.weight': 6 heads"));
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
    EXPECT_THAT(test::error_of([&] { plan_report(options); }),
                HasSubstr("--mesh: tensor 'model.layers.0.self_attn.q_proj"));
    options.placements = "R";
    EXPECT_THROW(options.validate(), ConfigError);
}

}  // namespace
}  // namespace tandem::sync
