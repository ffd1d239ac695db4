// What each rank of a mesh holds of each parameter: tensor parallelism first, then FSDP over its piece, element by element
// against a naive order of cuts, for sizes that nothing divides too; and the degrees that fit a model.
#include "common/sharding/holding.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "common/dtensor/layout.h"
#include "common/mesh/parallel_dims.h"
#include "common/sharding/tensor_cut.h"
#include "tests/support/error_of.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

model::DecoderSizes sizes(std::int64_t heads, std::int64_t kv_heads) {
    model::DecoderSizes s;
    s.vocab_size = 13;
    s.hidden_size = 10;
    s.intermediate_size = 9;
    s.num_hidden_layers = 1;
    s.num_attention_heads = heads;
    s.num_key_value_heads = kv_heads;
    s.head_dim = 6;
    s.tie_word_embeddings = false;
    s.qkv_bias = s.o_bias = s.mlp_bias = true;
    return s;
}

Ids chunk(const Ids& ids, int ranks, int rank) {
    const auto n = static_cast<std::int64_t>(ids.size());
    const std::int64_t size = (n + ranks - 1) / ranks;
    return {ids.begin() + std::min(n, rank * size), ids.begin() + std::min(n, (rank + 1) * size)};
}

std::vector<Ids> naive(const model::ParameterSpec& spec, int fsdp, int fsdp_rank, int tp, int tp_rank) {
    std::vector<Ids> dims;
    for (const std::int64_t n : spec.shape) {
        dims.emplace_back(static_cast<std::size_t>(n));
        std::iota(dims.back().begin(), dims.back().end(), 0);
    }
    const bool rows = spec.cut == model::Cut::column || spec.cut == model::Cut::vocabulary;
    const bool shared = rows && spec.heads > 0 && spec.heads < tp;
    if (shared) dims[0] = chunk(dims[0], spec.heads, tp_rank / (tp / spec.heads));
    if (rows && !shared) dims[0] = chunk(dims[0], tp, tp_rank);
    if (spec.cut == model::Cut::row) dims[1] = chunk(dims[1], tp, tp_rank);
    dims[0] = chunk(dims[0], fsdp, fsdp_rank);
    return dims;
}

void expect_as_cut(const ParallelDegrees& d, int rank, const model::ParameterSpec& spec) {
    const int fsdp = d.dp_shard * d.cp;
    const ParallelDims dims(d, static_cast<int>(ParallelDims::ranks_of(d)), rank);
    const Holding held = holding_of(
        dims.world_mesh().unflatten("world", {d.dp_replicate, fsdp, d.tp}, {"dp_replicate", "fsdp", "tp"}),
        "fsdp", spec);
    const LocalLayout layout =
        local_layout(spec.shape, held.mesh.sizes(), held.placements, held.mesh.coordinates());
    std::vector<Ids> here;
    for (const auto& runs : layout.runs) {
        Ids& ids = here.emplace_back();
        for (const auto& [begin, end] : runs) {
            for (std::int64_t i = begin; i < end; ++i) ids.push_back(i);
        }
    }
    EXPECT_EQ(here, naive(spec, fsdp, rank / d.tp % fsdp, d.tp, rank % d.tp))
        << spec.name << " tp " << d.tp << " fsdp " << fsdp << " rank " << rank;
}

TEST(Holding, TensorParallelismThenFsdp) {
    for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {4, 2}, {4, 1}, {6, 3}, {12, 6}}) {
        for (const ParallelDegrees& d :
             std::vector<ParallelDegrees>{{.dp_shard = 2, .tp = 2},
                                          {.dp_shard = 1, .tp = 4},
                                          {.dp_replicate = 2, .dp_shard = 3, .tp = 2},
                                          {.dp_shard = 2, .cp = 2, .tp = 2},
                                          {.dp_shard = 5, .tp = 4},
                                          {.dp_shard = 3, .tp = 6},
                                          {.dp_shard = 4, .tp = 1}}) {
            const auto fit = tensor_degrees(sizes(heads, kv_heads), d.tp);
            if (fit.back() != d.tp) continue;
            for (const model::ParameterSpec& spec : model::parameter_specs(sizes(heads, kv_heads))) {
                for (int rank = 0; rank < ParallelDims::ranks_of(d); ++rank) expect_as_cut(d, rank, spec);
            }
        }
    }
}

TEST(Holding, TheLargestShardIsThatOfTheFirstRank) {
    for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {4, 2}, {4, 1}}) {
        for (const int tp : {1, 2, 4}) {
            for (const int shards : {1, 2, 5}) {
                std::vector<std::int64_t> held(static_cast<std::size_t>(shards * tp));
                for (std::size_t rank = 0; rank < held.size(); ++rank) {
                    const DeviceMesh mesh =
                        DeviceMesh::abstract({shards, tp}, {"fsdp", "tp"}, static_cast<int>(rank));
                    for (const model::ParameterSpec& spec : model::parameter_specs(sizes(heads, kv_heads))) {
                        const Holding here = holding_of(mesh, "fsdp", spec);
                        held[rank] += numel(local_shape(spec.shape, here.mesh.sizes(), here.placements,
                                                        here.mesh.coordinates()));
                    }
                }
                EXPECT_EQ(largest_shard(sizes(heads, kv_heads), tp, shards,
                                        {DecoderPart::whole(sizes(heads, kv_heads))}),
                          held[0])
                    << tp << " " << shards;
                EXPECT_EQ(held[0], *std::max_element(held.begin(), held.end()));
            }
        }
    }
}

TEST(Holding, AxesComeInTheOrderOfCutting) {
    const DeviceMesh mesh = DeviceMesh::abstract({2, 3, 4}, {"dp_replicate", "fsdp", "tp"}, 7);
    const auto specs = model::parameter_specs(sizes(4, 2));
    const Holding table = holding_of(mesh, "fsdp", specs[0]);
    EXPECT_EQ(table.mesh.names(), (std::vector<std::string>{"dp_replicate", "tp", "fsdp"}));
    EXPECT_EQ(table.mesh.coordinates(), (std::vector<int>{0, 3, 1}));
    EXPECT_EQ(table.mesh.ranks()[1], 4);  // the next of fsdp
    EXPECT_EQ(to_string(table.placements), "[R, S(0), S(0)]");
    using model::Role;
    const std::map<std::pair<Role, bool>, std::string> some{{{Role::k, false}, "[R, S(0), R, S(0)]"},
                                                            {{Role::k, true}, "[R, S(0), R, S(0)]"},
                                                            {{Role::down, false}, "[R, S(1), S(0)]"},
                                                            {{Role::down, true}, "[R, R, S(0)]"},
                                                            {{Role::norm, false}, "[R, R, S(0)]"}};
    for (const auto& spec : specs) {
        const auto expected = some.find({spec.role, spec.bias});
        if (expected == some.end()) continue;
        EXPECT_EQ(to_string(holding_of(mesh, "fsdp", spec).placements), expected->second) << spec.name;
    }
}

TEST(TensorCut, HeadsThatDoNotDivideAreNamed) {
    const auto refusal = [](const model::DecoderSizes& of, int tp) {
        return test::error_of([&] {
            for (const auto& spec : model::parameter_specs(of)) tensor_cut(spec, tp);
        });
    };
    EXPECT_THAT(
        refusal(sizes(9, 3), 2),
        HasSubstr("'model.layers.0.self_attn.q_proj.weight': 9 heads do not divide by tensor parallelism 2"));
    EXPECT_EQ(refusal(sizes(9, 3), 3), "");
    EXPECT_THAT(refusal(sizes(8, 6), 4), HasSubstr("k_proj.weight': 6 heads"));
}

TEST(TensorCut, DegreesThatFit) {
    EXPECT_THAT(tensor_degrees(sizes(9, 3), 9), ElementsAre(1, 3, 9));
    EXPECT_THAT(tensor_degrees(sizes(14, 2), 16), ElementsAre(1, 2, 14));
    EXPECT_THAT(tensor_degrees(sizes(12, 6), 8), ElementsAre(1, 2, 3, 6));
    EXPECT_THAT(tensor_degrees(sizes(8, 1), 4), ElementsAre(1, 2, 4));
    check_tensor_degree(sizes(9, 3), 3);
    EXPECT_THAT(
        test::error_of([] { check_tensor_degree(sizes(9, 3), 2); }),
        HasSubstr("tensor parallelism 2 does not fit 9 query heads and 3 key and value heads; 1, 3, 9 do"));
    EXPECT_THAT(test::error_of([] { check_tensor_degree(sizes(8, 6), 4); }), HasSubstr("; 1, 2 do"));
}

// Stages of four ranks each, of which the first and the third have the table: either sees the same mesh.
TEST(Holding, ATableOfTwoStages) {
    model::ParameterSpec table{"t", {13, 2}, model::Cut::vocabulary};
    for (const int rank : {0, 3, 8, 11}) {
        const DeviceMesh all = DeviceMesh::abstract({3, 1, 2, 2}, {"pp", "dp_replicate", "fsdp", "tp"}, rank);
        const Holding one = holding_of(all.slice({"dp_replicate", "fsdp", "tp"}), "fsdp", table);
        const Holding held = shared_holding(all.first_and(2, "ends"), one);
        EXPECT_THAT(held.mesh.names(), ElementsAre("ends", "dp_replicate", "tp", "fsdp"));
        EXPECT_EQ(to_string(held.placements), "[R, R, S(0), S(0)]");
        EXPECT_THAT(held.mesh.ranks(), ElementsAre(0, 2, 1, 3, 8, 10, 9, 11));
        EXPECT_EQ(local_layout(table.shape, held.mesh.sizes(), held.placements, held.mesh.coordinates()),
                  local_layout(table.shape, one.mesh.sizes(), one.placements, one.mesh.coordinates()));
    }
}

}  // namespace
}  // namespace tandem
