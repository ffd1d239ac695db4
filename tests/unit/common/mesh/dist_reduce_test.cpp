// Reductions of a few doubles over thread ranks, and seeds by axis; the numbers are worked out by hand.
#include "common/mesh/dist_reduce.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/mesh/distinct_seed.h"
#include "common/mesh/parallel_dims.h"
#include "tests/support/error_of.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Group = std::shared_ptr<comm::Communicator>;

TEST(DistReduce, NoMeshIsTheValueItself) {
    EXPECT_EQ(dist_sum(2.5, std::nullopt), 2.5);
    EXPECT_EQ(dist_mean(2.5, std::nullopt), 2.5);
    EXPECT_EQ(dist_max(-2.5, std::nullopt), -2.5);
    const ParallelDims one({.dp_shard = 1}, 1);
    EXPECT_EQ(dist_sum(2.5, one.get_optional_mesh("loss")), 2.5);  // an axis of one rank does not exist
}

TEST(DistReduce, OverAnAxisAlone) {
    comm::run_threads(6, [](const Group& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 3}, {"dp", "tp"});
        const double value = static_cast<double>(mesh.rank() * mesh.rank());  // 0 1 4, 9 16 25
        const bool first = mesh.coordinate("dp") == 0;
        const DeviceMesh tp = mesh.slice({"tp"});
        EXPECT_EQ(dist_sum(value, tp), first ? 5.0 : 50.0);
        EXPECT_EQ(dist_mean(value, tp), first ? 5.0 / 3.0 : 50.0 / 3.0);
        EXPECT_EQ(dist_max(value, tp), first ? 4.0 : 25.0);
        EXPECT_EQ(dist_max(-value, tp), first ? 0.0 : -9.0);
        EXPECT_EQ(dist_sum(value, mesh.flatten({"dp", "tp"}, "all")), 55.0);
        const DeviceMesh line = DeviceMesh::create(world, {1, 6}, {"one", "six"}).slice({"one"});
        EXPECT_EQ(dist_mean(value, line), value);
        EXPECT_THAT(test::error_of([&] { dist_sum(value, mesh); }), HasSubstr("mesh of 2 axes"));
        EXPECT_THAT(test::error_of([&] { dist_max(value, mesh); }), HasSubstr("flatten them"));
    });
}

// ((1e16 + 1) + -1e16) + 1 = 1 in fp64 in rank order: 1e16 + 1 rounds to 1e16. Most other orders give 2 or 0, and fp32 1 + 2^-60 is 1.
TEST(DistReduce, InRankOrderAndInDoublePrecision) {
    comm::run_threads(4, [](const Group& world) {
        const double values[] = {1e16, 1.0, -1e16, 1.0};
        const DeviceMesh mesh = DeviceMesh::create(world, {4}, {"dp"});
        EXPECT_EQ(dist_sum(values[world->rank()], mesh), 1.0);
        EXPECT_EQ(dist_mean(values[world->rank()], mesh), 0.25);
        double several[] = {values[world->rank()], 0x1p-60 * (world->rank() + 1)};
        reduce_sums(several, *world);
        EXPECT_THAT(several, ElementsAre(1.0, 10 * 0x1p-60));
        const double third = dist_sum(1.0 / (world->rank() + 3), mesh);
        EXPECT_EQ(std::bit_cast<std::uint64_t>(third),
                  std::bit_cast<std::uint64_t>(1.0 / 3 + 1.0 / 4 + 1.0 / 5 + 1.0 / 6));
    });
}

TEST(DistReduce, ANanOfAnyRankIsSeenByAll) {
    for (int sick = 0; sick < 3; ++sick) {
        comm::run_threads(3, [&](const Group& world) {
            const double nan = std::numeric_limits<double>::quiet_NaN();
            const double value = world->rank() == sick ? nan : 7.0;
            EXPECT_TRUE(std::isnan(max_over(value, *world)));
            EXPECT_TRUE(std::isnan(dist_mean(value, DeviceMesh::create(world, {3}, {"dp"}))));
        });
    }
}

// (pp 2, dp 3, tp 2): rank 7 is at (1, 0, 1), rank 10 at (1, 2, 0).
TEST(DistinctSeed, GoldenNumbers) {
    const auto seed_of = [](int rank, const std::vector<std::string>& axes, std::uint64_t seed = 100) {
        return distinct_seed(seed, DeviceMesh::abstract({2, 3, 2}, {"pp", "dp", "tp"}, rank), axes);
    };
    EXPECT_EQ(seed_of(7, {}), 100u);
    EXPECT_EQ(seed_of(7, {"pp"}), 101u);
    EXPECT_EQ(seed_of(7, {"dp"}), 100u);
    EXPECT_EQ(seed_of(10, {"dp"}), 102u);
    EXPECT_EQ(seed_of(10, {"pp", "dp"}), 105u);        // 1 + 2·2
    EXPECT_EQ(seed_of(10, {"dp", "pp"}), 105u);        // 2 + 1·3
    EXPECT_EQ(seed_of(7, {"tp", "pp"}), 103u);         // 1 + 1·2
    EXPECT_EQ(seed_of(7, {"pp", "dp", "tp"}), 107u);   // 1 + 0·2 + 1·6
    EXPECT_EQ(seed_of(11, {"pp", "dp", "tp"}), 111u);  // 1 + 2·2 + 1·6
    EXPECT_EQ(seed_of(11, {"pp", "dp", "tp"}, UINT64_MAX), 10u);
    EXPECT_THAT(test::error_of([&] { seed_of(0, {"ep"}); }), HasSubstr("unknown mesh axis 'ep'"));
}

TEST(DistinctSeed, DiffersInTheNamedAxesOnly) {
    const std::vector<int> sizes = {2, 3, 2, 4};
    const std::vector<std::string> names = {"pp", "dp", "cp", "tp"};
    for (int named = 0; named < 16; ++named) {
        std::vector<std::string> axes;
        for (std::size_t i = 0; i < 4; ++i)
            if (named >> i & 1) axes.push_back(names[i]);
        std::set<std::pair<std::uint64_t, std::vector<int>>> seeds;  // with the coordinates that are named
        std::set<std::uint64_t> different;
        for (int rank = 0; rank < 48; ++rank) {
            const DeviceMesh mesh = DeviceMesh::abstract(sizes, names, rank);
            std::vector<int> at;
            for (const std::string& axis : axes) at.push_back(mesh.coordinate(axis));
            const std::uint64_t seed = distinct_seed(UINT64_MAX - 5, mesh, axes);
            seeds.emplace(seed, at);
            different.insert(seed);
        }
        std::size_t wanted = 1;
        for (const std::string& axis : axes)
            wanted *= static_cast<std::size_t>(DeviceMesh::abstract(sizes, names).size(axis));
        EXPECT_EQ(seeds.size(), wanted) << named;
        EXPECT_EQ(different.size(), wanted) << named;
    }
}

}  // namespace
}  // namespace tandem
