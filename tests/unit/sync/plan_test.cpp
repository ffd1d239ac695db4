// The plan against the byte-exact oracle: exhaustively over the layouts of small meshes, and at random.
#include "sync/plan/plan.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "common/error.h"
#include "sync/plan/holdings.h"
#include "tests/unit/sync/plan_oracle.h"

namespace tandem::sync {
namespace {

PlanTensor make_tensor(const std::string& name, Shape shape, const std::vector<int>& mesh,
                       const Placements& placements, DType dtype = DType::bfloat16) {
    PlanTensor tensor{{name, shape, dtype}, dtype, {}};
    const std::vector<std::string> names =
        mesh.size() == 1 ? std::vector<std::string>{"dp"} : std::vector<std::string>{"dp", "cp"};
    const DeviceMesh all = DeviceMesh::abstract(mesh, names);
    for (int rank = 0; rank < all.size(); ++rank) {
        for (const Holding& h : holdings(shape, mesh, placements, all.coordinates_of(rank), rank)) {
            tensor.holdings.push_back(h);
        }
    }
    return tensor;
}

std::vector<std::size_t> bytes_of_ranks(const Plan& plan, int world_size) {
    std::vector<std::size_t> bytes(static_cast<std::size_t>(world_size), 0);
    for (const auto& bucket : plan.buckets) {
        for (const auto& piece : bucket.pieces) bytes[static_cast<std::size_t>(piece.rank)] += piece.bytes;
    }
    return bytes;
}

TEST(Plan, EveryLayoutOfSmallMeshesAndManySizesLandsWhole) {
    const std::vector<Placement> kinds{Shard(0), Replicate()};
    for (const std::vector<int>& mesh :
         {std::vector<int>{1}, {2}, {3}, {4}, {2, 2}, {2, 3}, {1, 2}, {4, 1}}) {
        const int world = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
        std::vector<Placements> layouts;
        for (const Placement& first : kinds) {
            if (mesh.size() == 1)
                layouts.push_back({first});
            else
                for (const Placement& second : kinds) layouts.push_back({first, second});
        }
        if (mesh.size() == 2) layouts.push_back({StridedShard(0, mesh[1]), Shard(0)});
        for (const Placements& layout : layouts) {
            for (const std::int64_t rows : {0, 1, 2, 3, 5, 7, 8, 9, 12}) {
                for (const std::size_t bucket : {std::size_t{448}, std::size_t{1024}, std::size_t{65536}}) {
                    PlanOptions options{bucket, 256, world};
                    std::vector<PlanTensor> tensors;
                    tensors.push_back(make_tensor("matrix", {rows, 37}, mesh, layout));
                    tensors.push_back(make_tensor("vector", {rows}, mesh, layout));
                    tensors.push_back(make_tensor("wide", {rows, 3, 129}, mesh, layout, DType::float32));
                    SCOPED_TRACE(fmt::format("mesh {} layout {} rows {} bucket {}",
                                             tandem::to_string(Shape(mesh.begin(), mesh.end())),
                                             tandem::to_string(layout), rows, bucket));
                    check_plan(make_plan(std::move(tensors), options), options);
                    if (testing::Test::HasFatalFailure()) return;
                }
            }
        }
    }
}

TEST(Plan, RandomTensorsLandWhole) {
    std::mt19937 random(7);
    const auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int round = 0; round < 300; ++round) {
        const std::vector<int> mesh =
            pick(0, 1) == 0 ? std::vector<int>{pick(1, 8)} : std::vector<int>{pick(1, 4), pick(1, 4)};
        PlanOptions options;
        options.world_size = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
        options.bucket_bytes = static_cast<std::size_t>(pick(64 * options.world_size, 20000));
        options.max_piece_bytes = static_cast<std::size_t>(pick(64, 4000));
        std::vector<PlanTensor> tensors;
        for (int t = pick(1, 8); t > 0; --t) {
            Shape shape;
            for (int d = pick(0, 3); d > 0; --d) shape.push_back(pick(1, 24));
            Placements layout;
            for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
                layout.push_back(shape.empty() || pick(0, 1) == 0 ? Replicate() : Shard(0));
            }
            tensors.push_back(make_tensor(fmt::format("t{}", t), shape, mesh, layout,
                                          pick(0, 1) == 0 ? DType::float32 : DType::bfloat16));
        }
        SCOPED_TRACE(fmt::format("round {}", round));
        check_plan(make_plan(std::move(tensors), options), options);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Plan, CastsChangeOffsetsInTheSourceOnly) {
    PlanTensor tensor = make_tensor("w", {10, 64}, {2}, {Shard(0)});
    tensor.source_dtype = DType::float32;
    const Plan plan = make_plan({tensor}, {4096, 256, 2});
    for (const auto& bucket : plan.buckets) {
        for (const Piece& piece : bucket.pieces) {
            const std::size_t in_local = piece.tensor_offset - (piece.rank == 0 ? 0u : 5u * 64 * 2);
            EXPECT_EQ(piece.source_offset, 2 * in_local);
        }
    }
}

TEST(Plan, ReplicasShareTheWork) {
    // (dp 2, cp 2), sharded over dp only: the cp replicas each copy half of what dp holds.
    std::vector<PlanTensor> tensors;
    for (int i = 0; i < 20; ++i)
        tensors.push_back(make_tensor(fmt::format("w{}", i), {64, 256}, {2, 2}, {Shard(0), Replicate()}));
    tensors.push_back(make_tensor("norm", {1}, {2, 2}, {Replicate(), Replicate()}));
    const Plan plan = make_plan(tensors, {1 << 16, 1 << 20, 4});
    const auto bytes = bytes_of_ranks(plan, 4);
    for (const std::size_t b : bytes)
        EXPECT_NEAR(static_cast<double>(b), static_cast<double>(plan.bytes) / 4, 1024.0);
}

TEST(Plan, EveryBucketKeepsEveryRankBusyAlsoInsideOneHugeTensor) {
    // A tensor ten times a bucket, its upper rows on rank 0: cut so that both ranks work on every bucket.
    const Plan plan = make_plan({make_tensor("embedding", {2560, 128}, {2}, {Shard(0)})}, {65536, 8192, 2});
    ASSERT_GE(plan.buckets.size(), 10u);
    for (std::size_t b = 0; b + 1 < plan.buckets.size(); ++b) {
        std::vector<std::size_t> bytes(2, 0);
        for (const Piece& piece : plan.buckets[b].pieces)
            bytes[static_cast<std::size_t>(piece.rank)] += piece.bytes;
        EXPECT_EQ(bytes[0], bytes[1]) << b;
        EXPECT_GE(bytes[0] + bytes[1], 60000u) << b;
    }
}

TEST(Plan, WholeRowsWhereOneFits) {
    const Plan plan = make_plan({make_tensor("w", {100, 100}, {3}, {Shard(0)})}, {3000, 1000, 3});
    for (const auto& bucket : plan.buckets) {
        for (const Piece& piece : bucket.pieces) EXPECT_EQ(piece.tensor_offset % 200, 0u);
    }
}

TEST(Plan, RefusesWhatItCannotDo) {
    const auto message = [](const auto& call) -> std::string {
        try {
            call();
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "no error";
    };
    PlanTensor gap{{"gap", {8, 4}, DType::float32}, DType::float32, {{0, 0, 3, 0}, {1, 5, 8, 0}}};
    EXPECT_THAT(message([&] {
                    make_plan({gap}, {4096, 4096, 2});
                }),
                testing::HasSubstr("'gap': no rank holds rows [3, 5)"));
    PlanTensor cast{{"cast", {4}, DType::bfloat16}, DType::int64, {{0, 0, 4, 0}}};
    EXPECT_THAT(message([&] {
                    make_plan({cast}, {4096, 4096, 1});
                }),
                testing::HasSubstr("no cast from int64 to bfloat16"));
    const PlanTensor small = make_tensor("w", {64, 64}, {4}, {Shard(0)});
    EXPECT_THAT(message([&] {
                    make_plan({small}, {128, 4096, 4});
                }),
                testing::HasSubstr("too small for 4 ranks"));
    EXPECT_THAT(message([] { holdings({4, 4}, {2}, {Shard(1)}, {0}, 0); }), testing::HasSubstr("[S(1)]"));
    EXPECT_THAT(message([] { holdings({4, 4}, {2}, {Partial()}, {0}, 0); }), testing::HasSubstr("P(sum)"));
}

}  // namespace
}  // namespace tandem::sync
