// Reshard plans against the oracle: exhaustively on small meshes, at random on larger ones.
#include <gmock/gmock.h>

#include <random>

#include "common/error.h"
#include "tests/unit/sync/plan/reshard_model.h"
#include "tests/unit/sync/plan/reshard_oracle.h"

namespace tandem::sync {
namespace {

const std::vector<Placement> kPlacements{Shard(0), Shard(1), StridedShard(0, 2), StridedShard(1, 2),
                                         Replicate()};

std::vector<Placements> all_placements(std::size_t axes) {
    std::vector<Placements> result{{}};
    for (std::size_t axis = 0; axis < axes; ++axis) {
        std::vector<Placements> longer;
        for (const Placements& one : result) {
            for (const Placement& next : kPlacements) {
                longer.push_back(one);
                longer.back().push_back(next);
            }
        }
        result = std::move(longer);
    }
    return result;
}

// Every mesh and placement, to every engine, cut as finely as possible, a little, and not at all.
TEST(Reshard, EveryLayoutOfSmallMeshes) {
    const auto model = small_model();
    const std::vector<std::vector<int>> meshes{{1}, {2}, {3}, {4}, {2, 2}, {2, 3}, {2, 2, 2}};
    std::vector<EngineLayout> engines;
    for (const EngineParallel& parallel :
         {EngineParallel{1, 1, true}, EngineParallel{2, 1, true}, EngineParallel{4, 1, true},
          EngineParallel{2, 1, false}, EngineParallel{1, 2, true}, EngineParallel{2, 4, true},
          EngineParallel{4, 2, false}}) {
        engines.push_back(engine_layout(model, parallel, DType::bfloat16));
    }
    const std::vector<std::size_t> splits{1, 24, 64u << 10};
    for (const auto& mesh : meshes) {
        for (const Placements& placements : all_placements(mesh.size())) {
            for (std::size_t e = 0; e < engines.size(); ++e) {
                for (const std::size_t split : splits) {
                    SCOPED_TRACE(fmt::format("{} to engine {}, {}", to_string(placements), e, split));
                    check_reshard(ReshardPlan::make(on_mesh(model, mesh, placements), engines[e], {split}));
                    if (testing::Test::HasFatalFailure()) return;
                }
            }
        }
    }
}

int pick(std::mt19937& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

SourceGroup random_group(std::mt19937& random, int& next_rank, int dims) {
    SourceGroup group;
    int size = 1;
    for (int axis = pick(random, 1, 3); axis > 0; --axis) {
        group.mesh_sizes.push_back(pick(random, 1, 4));
        size *= group.mesh_sizes.back();
        const int kind = pick(random, 0, 3);
        const int dim = dims == 0 ? 0 : pick(random, 0, dims - 1);
        if (kind == 0 || dims == 0) {
            group.placements.push_back(Replicate());
        } else if (kind == 1) {
            group.placements.push_back(StridedShard(dim, pick(random, 1, 3)));
        } else {
            group.placements.push_back(Shard(dim));
        }
    }
    for (int i = 0; i < size; ++i) group.ranks.push_back(next_rank++);
    std::shuffle(group.ranks.begin(), group.ranks.end(), random);
    return group;
}

// Cuts a tensor into boxes and puts them one behind the other, or, two at a time, interleaved by columns,
// each with its dims in any order.
engine::TensorInfo random_target(std::mt19937& random, const SourceTensor& tensor, const std::string& name) {
    engine::TensorInfo target{name, {numel(tensor.shape)}, DType::float32, {}};
    Shape cut(tensor.shape.size(), 0);
    std::vector<Shape> starts{cut}, sizes{tensor.shape};
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
        if (tensor.shape[d] < 2 || pick(random, 0, 1) == 0) continue;
        const std::int64_t at = pick(random, 1, static_cast<int>(tensor.shape[d]) - 1);
        for (std::size_t i = starts.size(); i-- > 0;) {
            starts.push_back(starts[i]);
            sizes.push_back(sizes[i]);
            starts.back()[d] = at;
            sizes.back()[d] = tensor.shape[d] - at;
            sizes[i][d] = at;
        }
    }
    std::int64_t offset = 0;
    const bool interleave = starts.size() == 2 && tensor.shape.size() == 2 && sizes[0][1] < tensor.shape[1];
    for (std::size_t i = 0; i < starts.size(); ++i) {
        engine::Part part{tensor.name, starts[i], sizes[i], offset, Shape(sizes[i].size(), 0)};
        if (interleave) {
            part.stride = {tensor.shape[1], 1};
            offset += sizes[i][1];
        } else {
            std::vector<std::size_t> order(sizes[i].size());
            std::iota(order.begin(), order.end(), std::size_t{0});
            if (pick(random, 0, 2) == 0) std::shuffle(order.begin(), order.end(), random);
            std::int64_t stride = 1;
            for (std::size_t d = order.size(); d-- > 0;) {
                part.stride[order[d]] = stride;
                stride *= sizes[i][order[d]];
            }
            offset += stride;
        }
        target.parts.push_back(part);
    }
    if (pick(random, 0, 1) == 0) std::shuffle(target.parts.begin(), target.parts.end(), random);
    return target;
}

TEST(Reshard, RandomLayouts) {
    std::mt19937 random(7);
    for (int round = 0; round < 1000; ++round) {
        SourceLayout source;
        EngineLayout engine(static_cast<std::size_t>(pick(random, 1, 3)));
        const int dims = pick(random, 0, 3);
        int ranks = 0;
        const int groups = pick(random, 1, 3);
        for (int g = 0; g < groups; ++g) source.groups.push_back(random_group(random, ranks, dims));
        source.world_size = ranks + pick(random, 0, 1);
        for (int t = pick(random, 1, 4); t > 0; --t) {
            SourceTensor tensor{fmt::format("t{}", t), {}, DType::float32, {}};
            for (int d = 0; d < dims; ++d) tensor.shape.push_back(pick(random, 1, 14));
            for (int g = 0; g < groups; ++g)
                if (tensor.groups.empty() || pick(random, 0, 1) == 0) tensor.groups.push_back(g);
            for (auto& rank : engine)
                rank.push_back(random_target(random, tensor, fmt::format("e{}", rank.size())));
            source.tensors.push_back(tensor);
        }
        SCOPED_TRACE(fmt::format("round {}", round));
        const auto split = static_cast<std::size_t>(pick(random, 1, 60));
        check_reshard(ReshardPlan::make(source, engine, {split}));
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Reshard, LargerMeshesWithUnevenShards) {
    const std::vector<model::ParameterSpec> model{{"a", {37, 24}, model::Cut::replicate, 0},
                                                  {"b", {24, 50}, model::Cut::row, 0},
                                                  {"c", {64, 9}, model::Cut::column, 0}};
    for (const auto& [mesh, placements] : std::vector<std::pair<std::vector<int>, Placements>>{
             {{16}, {Shard(0)}},
             {{4, 8}, {Replicate(), Shard(0)}},
             {{4, 4, 2}, {StridedShard(0, 4), Shard(0), Shard(1)}},
             {{8, 3, 2}, {Shard(1), Replicate(), StridedShard(0, 3)}}}) {
        for (const int tp : {1, 2}) {
            SCOPED_TRACE(to_string(placements));
            check_reshard(ReshardPlan::make(on_mesh(model, mesh, placements),
                                            engine_layout(model, {tp, 1, true}, DType::float32), {128}));
        }
    }
}

// Rows of a vocabulary that divides by nothing; the last of eight ranks has none.
TEST(Reshard, PaddedVocabularies) {
    const std::vector<model::ParameterSpec> model{{"embed", {101, 8}, model::Cut::vocabulary, 0},
                                                  {"norm", {8}, model::Cut::replicate, 0},
                                                  {"lm_head", {101, 8}, model::Cut::vocabulary, 0}};
    for (const int tp : {1, 2, 3, 8}) {
        for (const auto& [mesh, placements] : std::vector<std::pair<std::vector<int>, Placements>>{
                 {{2}, {Shard(0)}}, {{3}, {Shard(0)}}, {{2, 2}, {Replicate(), Shard(1)}}}) {
            SCOPED_TRACE(fmt::format("tp {}, {}", tp, to_string(placements)));
            check_reshard(ReshardPlan::make(on_mesh(model, mesh, placements),
                                            engine_layout(model, {tp, 1, true}, DType::float32), {128}));
        }
    }
}

// ------------------------------------------------------------------------------------------- long runs

SourceLayout one_tensor(const Shape& shape, const std::vector<int>& mesh, const Placements& placements) {
    return on_mesh({{"w", shape, model::Cut::replicate, 0}}, mesh, placements);
}
EngineLayout whole(const Shape& shape) {
    return {{{"w", shape, DType::float32, {}}}};
}

TEST(ReshardRuns, RowShardsAreOneRunEach) {
    const auto plan = ReshardPlan::make(one_tensor({64, 32}, {4}, {Shard(0)}), whole({64, 32}));
    const auto moves = plan.moves_to(0);
    ASSERT_EQ(moves.size(), 4u);
    for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(moves[static_cast<std::size_t>(rank)],
                  (Move{rank, 0, 0, 0, 1, 512, 0, 512, 512 * rank, 512}));
    }
}

TEST(ReshardRuns, ColumnShardsAreRowsOfOneMove) {
    const auto plan = ReshardPlan::make(one_tensor({64, 32}, {4}, {Shard(1)}), whole({64, 32}));
    ASSERT_EQ(plan.move_count(), 4u);
    EXPECT_EQ(plan.moves_from(2), (std::vector<Move>{{2, 0, 0, 0, 64, 8, 0, 8, 16, 32}}));
}

// Two chunks of 32 rows, of which rank 1 has the second quarter each: two rows of one move.
TEST(ReshardRuns, StridedShardIsOneStridedMove) {
    const auto plan = ReshardPlan::make(one_tensor({64, 32}, {4}, {StridedShard(0, 2)}), whole({64, 32}));
    ASSERT_EQ(plan.move_count(), 4u);
    EXPECT_EQ(plan.moves_from(1), (std::vector<Move>{{1, 0, 0, 0, 2, 256, 0, 256, 256, 1024}}));
}

// A row slice of the engine takes columns of a trainer's rows: as many rows, no more moves.
TEST(ReshardRuns, RowParallelEngineTakesColumns) {
    const std::vector<model::ParameterSpec> model{{"w", {64, 32}, model::Cut::row, 0}};
    const auto plan = ReshardPlan::make(on_mesh(model, {2}, {Shard(0)}),
                                        engine_layout(model, {4, 1, true}, DType::float32));
    EXPECT_EQ(plan.move_count(), 8u);
    EXPECT_EQ(plan.moves_to(3)[1], (Move{1, 3, 0, 0, 32, 8, 24, 32, 256, 8}));
}

TEST(ReshardRuns, EqualGeometryIsOnePattern) {
    std::vector<model::ParameterSpec> model;
    for (int layer = 0; layer < 50; ++layer)
        model.push_back({fmt::format("w{}", layer), {16, 16}, model::Cut::column, 0});
    const auto plan = ReshardPlan::make(on_mesh(model, {4}, {Shard(0)}),
                                        engine_layout(model, {2, 1, true}, DType::float32));
    EXPECT_EQ(plan.pattern_count(), 2u);
    EXPECT_EQ(plan.move_count(), 200u);
}

}  // namespace
}  // namespace tandem::sync
