// A plan spreads the work over ranks that hold the same elements.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sync/plan/reshard_share.h"
#include "tests/unit/sync/plan/reshard_model.h"
#include "tests/unit/sync/plan/reshard_oracle.h"

namespace tandem::sync {
namespace {

double imbalance(const ReshardPlan& plan) {
    const auto& from = plan.bytes_from();
    const double sum = std::accumulate(from.begin(), from.end(), 0.0);
    return static_cast<double>(*std::max_element(from.begin(), from.end())) *
           static_cast<double>(from.size()) / sum;
}

std::vector<model::ParameterSpec> same_tensors(int count, const Shape& shape) {
    std::vector<model::ParameterSpec> model;
    for (int i = 0; i < count; ++i) model.push_back({fmt::format("w{}", i), shape, model::Cut::replicate, 0});
    return model;
}

ReshardPlan plan_of(const std::vector<model::ParameterSpec>& model, const SourceLayout& source,
                    const ReshardOptions& options = {}) {
    return ReshardPlan::make(source, engine_layout(model, {}, DType::bfloat16), options);
}

TEST(ReshardBalance, ReplicasCutLargeTensorsEvenly) {
    const auto model = same_tensors(1, {512, 512});
    for (const auto& [mesh, placements] :
         std::vector<std::pair<std::vector<int>, Placements>>{{{2}, {Replicate()}},
                                                              {{3}, {Replicate()}},
                                                              {{2, 2}, {Replicate(), Shard(0)}},
                                                              {{2, 2}, {Shard(1), Replicate()}}}) {
        SCOPED_TRACE(to_string(placements));
        const auto plan = plan_of(model, on_mesh(model, mesh, placements));
        EXPECT_LT(imbalance(plan), 1.001);
        check_reshard(plan);
        for (const Move& move : plan.moves_to(0)) EXPECT_GE(move.rows * move.row_elements * 2, 64 << 10);
    }
}

// 3 replicas of 16 strided rows: no even cut, so the larger piece goes round.
TEST(ReshardBalance, UnevenCutsGoRound) {
    const auto model = same_tensors(300, {16, 64});
    const auto plan = plan_of(model, on_mesh(model, {3, 2}, {Replicate(), Shard(1)}), {64});
    EXPECT_LT(imbalance(plan), 1.01);
}

TEST(ReshardBalance, SmallTensorsStayWholeAndGoRound) {
    const auto model = same_tensors(401, {64});
    const auto plan = plan_of(model, on_mesh(model, {4}, {Replicate()}));
    EXPECT_EQ(plan.move_count(), 401u);
    EXPECT_LT(imbalance(plan), 1.01);
    const auto moves = plan.moves_to(0);
    for (std::size_t i = 0; i + 8 <= moves.size(); i += 8) {  // at any time, not only in the end
        std::set<int> ranks;
        for (std::size_t j = i; j < i + 8; ++j) ranks.insert(moves[j].source_rank);
        EXPECT_EQ(ranks.size(), 4u) << "moves " << i << " to " << i + 7;
    }
}

TEST(ReshardBalance, TensorsOfManySizes) {
    std::vector<model::ParameterSpec> model;
    for (int i = 0; i < 60; ++i)
        model.push_back({fmt::format("w{}", i), {7 + i, 1000 + 37 * i}, model::Cut::replicate, 0});
    const auto source = on_mesh(model, {5}, {Replicate()});
    EXPECT_LT(imbalance(plan_of(model, source)), 1.01);
}

// Two rows on four ranks leave ranks 2 and 3 empty; the tensor that all hold makes up for it.
TEST(ReshardBalance, RanksWithLessElsewhereSendMore) {
    const std::vector<model::ParameterSpec> model{{"everywhere", {64, 4096}, model::Cut::replicate, 0},
                                                  {"uneven", {2, 65536}, model::Cut::replicate, 0}};
    SourceLayout source = on_mesh(model, {4}, {Shard(0)});
    source.groups.push_back({{0, 1, 2, 3}, {4}, {Replicate()}});
    source.tensors[0].groups = {2};
    const auto plan = plan_of(model, source);
    EXPECT_LT(imbalance(plan), 1.01);
    EXPECT_EQ(plan.bytes(), (64u * 4096 + 2 * 65536) * 2);
    check_reshard(plan);
}

// Two groups hold a tensor in different layouts: all of their ranks share the work.
TEST(ReshardBalance, GroupsAreReplicas) {
    const std::vector<model::ParameterSpec> model{{"w", {256, 256}, model::Cut::replicate, 0}};
    SourceLayout source = on_mesh(model, {4}, {Shard(0)});
    source.world_size = 6;
    source.groups.push_back({{5, 4}, {2}, {Shard(1)}});
    source.tensors[0].groups = {0, 2};
    const auto plan = plan_of(model, source, {1024});
    EXPECT_LT(imbalance(plan), 1.01);
    check_reshard(plan);
}

// Loads are as equal as can be when no rank sends an element that a less busy rank holds as well. Random
// groups in random layouts, of which each tensor lies on some.
TEST(ReshardBalance, NobodySendsWhatALessBusyRankHolds) {
    std::mt19937 random(11);
    const auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int round = 0; round < 40; ++round) {
        SCOPED_TRACE(round);
        SourceLayout source;
        source.world_size = 0;
        const int groups = pick(2, 4);
        for (int g = 0; g < groups; ++g) {
            SourceGroup group{{}, {pick(1, 3), pick(1, 3)}, {}};
            for (int axis = 0; axis < 2; ++axis)
                group.placements.push_back(pick(0, 1) == 0 ? Replicate() : Shard(pick(0, 1)));
            for (int i = group.mesh_sizes[0] * group.mesh_sizes[1]; i > 0; --i)
                group.ranks.push_back(source.world_size++);
            source.groups.push_back(group);
        }
        EngineLayout engine(1);
        for (int t = 0; t < 6; ++t) {
            SourceTensor tensor{fmt::format("w{}", t), {pick(30, 90), pick(30, 90)}, DType::float32, {}};
            for (int g = 0; g < groups; ++g)
                if (tensor.groups.empty() || pick(0, 1) == 0) tensor.groups.push_back(g);
            engine[0].push_back({tensor.name, tensor.shape, DType::float32, {}});
            source.tensors.push_back(tensor);
        }
        const auto plan = ReshardPlan::make(source, engine, {1});
        const auto& load = plan.bytes_from();
        // a row of the widest tensor, since cuts are at rows
        const double slack = 90 * 4 + 0.02 * static_cast<double>(plan.bytes()) / source.world_size;
        for (std::size_t t = 0; t < source.tensors.size(); ++t) {
            std::map<std::int64_t, std::vector<std::size_t>> holders;
            std::map<std::size_t, Ids> local;
            for (const int g : source.tensors[t].groups) {
                const SourceGroup& group = source.groups[static_cast<std::size_t>(g)];
                for (std::size_t at = 0; at < group.ranks.size(); ++at) {
                    const auto rank = static_cast<std::size_t>(group.ranks[at]);
                    local[rank] = local_ids(group, source.tensors[t].shape, at);
                    for (const std::int64_t id : local[rank]) holders[id].push_back(rank);
                }
            }
            for (const Move& move : plan.moves_to(0)) {
                if (move.source_tensor != static_cast<int>(t)) continue;
                const auto sender = static_cast<std::size_t>(move.source_rank);
                const std::int64_t id = local.at(sender).at(static_cast<std::size_t>(move.source_offset));
                for (const std::size_t other : holders.at(id)) {
                    ASSERT_LE(static_cast<double>(load[sender]), static_cast<double>(load[other]) + slack)
                        << source.tensors[t].name << " from " << sender << " rather than " << other;
                }
            }
        }
    }
}

TEST(ReshardBalance, EveryCallerGetsTheSamePlan) {
    const auto model = small_model();
    const auto source = on_mesh(model, {2, 3}, {Replicate(), Shard(0)});
    const auto a = plan_of(model, source, {16});
    const auto b = plan_of(model, source, {16});
    EXPECT_EQ(a.moves_to(0), b.moves_to(0));
}

TEST(ReshardTurns, EachHolderHasItsCount) {
    for (const auto& counts :
         std::vector<std::vector<std::uint64_t>>{{1}, {0, 3}, {5, 5, 5}, {7, 0, 1, 92}, {100000, 1, 99999}}) {
        const Turns turns(counts);
        std::vector<std::uint64_t> seen(counts.size(), 0);
        for (std::uint64_t unit = 0; unit < turns.units(); ++unit) ++seen.at(turns.holder(unit));
        EXPECT_EQ(seen, counts);
    }
}

}  // namespace
}  // namespace tandem::sync
