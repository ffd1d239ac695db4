// DeviceMesh without communication: coordinates, slices, flattened and cut axes, groups, errors.
#include "common/mesh/device_mesh.h"

#include <gmock/gmock.h>

#include <numeric>

#include "common/error.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Groups = std::vector<std::vector<int>>;

template <typename Call>
void expect_refused(const Call& call, const std::string& part) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(part)));
}

TEST(DeviceMesh, RowMajorCoordinatesOfEveryRank) {
    for (int rank = 0; rank < 12; ++rank) {
        const DeviceMesh mesh = DeviceMesh::abstract({2, 3, 2}, {"pp", "dp", "tp"}, rank);
        EXPECT_THAT(mesh.coordinates(), ElementsAre(rank / 6, rank / 2 % 3, rank % 2));
        EXPECT_EQ(mesh.rank(), rank);
        EXPECT_EQ(mesh.coordinate("dp"), rank / 2 % 3);
        EXPECT_EQ(mesh.coordinates_of(7), (std::vector<int>{1, 0, 1}));
        EXPECT_EQ(mesh.size(), 12);
    }
}

TEST(DeviceMesh, GroupsCoverEveryRankOnce) {
    const DeviceMesh mesh = DeviceMesh::abstract({2, 3, 2}, {"pp", "dp", "tp"});
    EXPECT_EQ(mesh.groups("pp"), (Groups{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
    EXPECT_EQ(mesh.groups("dp"), (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
    EXPECT_EQ(mesh.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
}

TEST(DeviceMesh, SliceHoldsTheRanksOfThisRanksPlane) {
    const DeviceMesh mesh = DeviceMesh::abstract({2, 3, 2}, {"pp", "dp", "tp"}, 9);  // (1, 1, 1)
    const DeviceMesh plane = mesh.slice({"pp", "tp"});
    EXPECT_THAT(plane.ranks(), ElementsAre(2, 3, 8, 9));
    EXPECT_THAT(plane.coordinates(), ElementsAre(1, 1));
    EXPECT_THAT(plane.names(), ElementsAre("pp", "tp"));
    EXPECT_EQ(plane.coordinates_of(8), (std::vector<int>{1, 0}));
    EXPECT_THAT(mesh.slice({"dp"}).ranks(), ElementsAre(7, 9, 11));
    EXPECT_EQ(mesh.slice({"dp"}).groups("dp"),
              mesh.groups("dp"));  // over the whole root, as from the mesh itself
    EXPECT_EQ(mesh.slice({"pp", "dp", "tp"}).ranks(), mesh.ranks());
    expect_refused([&] { plane.coordinates_of(0); }, "rank 0 is not in this mesh of 4 ranks");
    expect_refused([&] { plane.coordinates_of(99); }, "rank 99 is not in this mesh");
}

TEST(DeviceMesh, FlattenJoinsAdjacentAndDistantAxes) {
    const DeviceMesh mesh = DeviceMesh::abstract({2, 3, 2}, {"pp", "dp", "tp"}, 9);
    EXPECT_THAT(mesh.flatten({"dp", "tp"}, "dp_tp").ranks(), ElementsAre(6, 7, 8, 9, 10, 11));
    const DeviceMesh distant = mesh.flatten({"pp", "tp"}, "pp_tp");
    EXPECT_THAT(distant.ranks(), ElementsAre(2, 3, 8, 9));
    EXPECT_EQ(distant.ndim(), 1);
    EXPECT_EQ(distant.coordinate(0), 3);
    EXPECT_EQ(distant.groups("pp_tp"), (Groups{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
    // The root knows the name from now on, for meshes over all its ranks.
    EXPECT_THAT(mesh.slice({"pp_tp"}).ranks(), ElementsAre(2, 3, 8, 9));
    EXPECT_THAT(mesh.slice({"pp", "dp_tp"}).coordinates(), ElementsAre(1, 3));
    expect_refused([&] { mesh.slice({"pp_tp", "dp"}); }, "out of order");
    expect_refused([&] { mesh.slice({"pp", "pp_tp"}); }, "overlap");
    expect_refused([&] { mesh.slice({"dp", "tp"}).slice({"pp_tp"}); }, "unknown mesh axis 'pp_tp'");
    EXPECT_THAT(mesh.flatten({"pp", "tp"}, "pp_tp").ranks(), ElementsAre(2, 3, 8, 9));  // again: the same
    expect_refused([&] { mesh.flatten({"dp", "tp"}, "pp_tp"); }, "stands for other axes already");
    expect_refused(
        [&] {
            mesh.flatten({"dp", "tp"}, "pp");
        },
        "an axis of that name exists already in (pp, dp, tp)");
    expect_refused([&] { distant.unflatten("pp_tp", {2, 2}, {"a", "b"}); }, "do not lie next to each other");
}

// A table of the first and the last stage of four, replicated over both and sharded inside of each.
TEST(DeviceMesh, TwoRanksOfTheOutermostAxisBeforeOthers) {
    for (const int rank : {0, 3, 4, 12, 15}) {
        const DeviceMesh mesh = DeviceMesh::abstract({4, 2, 2}, {"pp", "dp", "tp"}, rank);
        const DeviceMesh inner = mesh.slice({"dp", "tp"}).permute({"tp", "dp"});
        if (rank == 4) {
            EXPECT_THROW(mesh.first_and(3, "ends"), InvalidArgument);
            continue;
        }
        const DeviceMesh both = inner.behind(mesh.first_and(3, "ends"));
        EXPECT_EQ(both.names(), (std::vector<std::string>{"ends", "tp", "dp"}));
        EXPECT_EQ(both.ranks(), (std::vector<int>{0, 2, 1, 3, 12, 14, 13, 15}));
        EXPECT_EQ(both.coordinate("ends"), rank < 4 ? 0 : 1);
        EXPECT_EQ(both.coordinate("tp"), rank % 2);
    }
    const DeviceMesh mesh = DeviceMesh::abstract({4, 2}, {"pp", "dp"});
    EXPECT_THROW(mesh.first_and(4, "ends"), InvalidArgument);
    EXPECT_THROW(mesh.first_and(0, "ends"), InvalidArgument);
    EXPECT_THROW(mesh.slice({"dp"}).first_and(1, "ends"), InvalidArgument);
    EXPECT_THROW(mesh.behind(mesh.first_and(3, "ends")), InvalidArgument) << "they overlap";
    EXPECT_THROW(mesh.slice({"dp"}).behind(DeviceMesh::abstract({2}, {"x"})), InvalidArgument);
}

TEST(DeviceMesh, UnflattenCutsOneAxis) {
    const DeviceMesh world = DeviceMesh::abstract({12}, {"world"}, 9);
    const DeviceMesh mesh = world.unflatten("world", {2, 3, 2}, {"pp", "dp", "tp"});
    EXPECT_THAT(mesh.coordinates(), ElementsAre(1, 1, 1));
    EXPECT_EQ(mesh.ranks(), world.ranks());
    const DeviceMesh deeper = mesh.unflatten("dp", {3, 1}, {"replicate", "shard"});
    EXPECT_THAT(deeper.names(), ElementsAre("pp", "replicate", "shard", "tp"));
    EXPECT_THAT(deeper.coordinates(), ElementsAre(1, 1, 0, 1));
    // Cutting one axis of a slice keeps the slice's ranks.
    EXPECT_THAT(mesh.slice({"dp", "tp"}).unflatten("tp", {1, 2}, {"a", "b"}).ranks(),
                ElementsAre(6, 7, 8, 9, 10, 11));
    // What was flattened from adjacent axes can be cut again.
    EXPECT_THAT(mesh.flatten({"dp", "tp"}, "dp_tp").unflatten("dp_tp", {2, 3}, {"x", "y"}).coordinates(),
                ElementsAre(1, 0));
}

TEST(DeviceMesh, RefusesWithWhatWouldBeRight) {
    const DeviceMesh mesh = DeviceMesh::abstract({4, 2}, {"dp", "cp"});
    expect_refused([&] { mesh.size("tp"); }, "unknown mesh axis 'tp': this mesh has (dp, cp)");
    expect_refused([&] { mesh.slice({"dp", "tp"}); }, "unknown mesh axis 'tp': this mesh has (dp, cp)");
    expect_refused([&] { mesh.slice({"cp", "dp"}); }, "must come in the order of the mesh, (dp, cp)");
    expect_refused([&] { mesh.slice({"cp", "cp"}); }, "appears twice");
    expect_refused([&] { mesh.slice({}); }, "at least one axis");
    expect_refused([&] { mesh.coordinate(2); }, "mesh axis 2 of a mesh with 2 axes");
    expect_refused(
        [&] {
            mesh.unflatten("dp", {2, 3}, {"a", "b"});
        },
        "sizes (2, 3) multiply to 6, but axis 'dp' has 4 ranks: the product must be 4");
    expect_refused([&] { mesh.unflatten("dp", {2, 2}, {"a", "cp"}); }, "appears twice");
    expect_refused([&] { mesh.unflatten("dp", {2, 2}, {"a"}); }, "one name for each size");
    expect_refused([&] { mesh.unflatten("dp", {-2, -2}, {"a", "b"}); }, "every size must be at least 1");
    expect_refused([] { DeviceMesh::abstract({0, 2}, {"a", "b"}); }, "every size must be at least 1");
    expect_refused([] { DeviceMesh::abstract({}, {}); }, "at least one axis");
    expect_refused([] { DeviceMesh::abstract({2}, {"a"}, 2); }, "must be 0 to 1");
    expect_refused([] { DeviceMesh::abstract({1 << 20, 1 << 20}, {"a", "b"}); }, "more than");
    expect_refused([] { DeviceMesh::create(nullptr, {1}, {"a"}); }, "world communicator");
    expect_refused([&] { mesh.communicator("dp"); }, "axis 'dp' of an abstract mesh has no communicator");
}

TEST(DeviceMesh, AxisOfOneNeedsNoWorld) {
    const DeviceMesh mesh = DeviceMesh::abstract({4, 1}, {"dp", "cp"}, 3);
    EXPECT_EQ(mesh.communicator("cp").size(), 1);
    EXPECT_EQ(mesh.groups_made(), 0);
}

// How long it takes: mesh_bench.
TEST(DeviceMesh, SixteenThousandRanks) {
    const DeviceMesh mesh = DeviceMesh::abstract({8, 16, 16, 8}, {"pp", "dp", "cp", "tp"}, 12345);
    std::size_t ranks = 0;
    for (const auto& name : mesh.names()) {
        for (const auto& group : mesh.groups(name)) ranks += group.size();
    }
    for (int rank = 0; rank < mesh.size(); ++rank) ASSERT_EQ(mesh.coordinates_of(rank)[3], rank % 8);
    EXPECT_EQ(ranks, 4u * 16384u);
}

}  // namespace
}  // namespace tandem
