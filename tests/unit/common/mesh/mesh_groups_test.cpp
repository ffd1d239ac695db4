// The communicators of a mesh, ranks as threads: who is in them, that they are shared, and that none is made
// for nothing.
#include <gmock/gmock.h>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/mesh/parallel_dims.h"

namespace tandem {
namespace {

using World = std::shared_ptr<comm::Communicator>;

// Every rank's number, gathered over an axis.
std::vector<std::int64_t> gathered_ranks(comm::Communicator& group, std::int64_t rank) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()), -1);
    group.all_gather(ConstSpan(reinterpret_cast<const std::byte*>(&rank), sizeof rank),
                     Span{reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof rank});
    return all;
}

TEST(MeshGroups, AxisGroupsJoinTheRanksThatTheMeshSays) {
    comm::run_threads(8, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 2, 2}, {"pp", "dp", "tp"});
        for (const std::string& axis : mesh.names()) {
            const DeviceMesh line = mesh.slice({axis});
            comm::Communicator& group = mesh.communicator(axis);
            EXPECT_EQ(group.global_ranks(), line.ranks());
            EXPECT_EQ(group.rank(), mesh.coordinate(axis));
            const auto ranks = gathered_ranks(group, mesh.rank());
            EXPECT_EQ((std::vector<int>(ranks.begin(), ranks.end())), line.ranks());
        }
    });
}

TEST(MeshGroups, MeshesOfOneRootShareGroupsWithTheSameRanks) {
    comm::run_threads(4, [](const World& world) {
        const DeviceMesh root = DeviceMesh::create(world, {4}, {"world"});
        EXPECT_EQ(&root.communicator("world"), world.get());
        const DeviceMesh mesh = root.unflatten("world", {2, 2}, {"dp", "cp"});
        EXPECT_EQ(mesh.groups_made(), 1);
        comm::Communicator& dp = mesh.communicator("dp");
        EXPECT_EQ(&mesh.slice({"dp"}).communicator("dp"), &dp);
        EXPECT_EQ(&root.unflatten("world", {2, 1, 2}, {"replicate", "shard", "cp"}).communicator("replicate"),
                  &dp);
        EXPECT_EQ(&mesh.flatten({"dp", "cp"}, "dp_cp").communicator("dp_cp"), world.get());
        EXPECT_EQ(mesh.groups_made(), 2);
    });
}

TEST(MeshGroups, AxesOfOneRankMakeNoGroup) {
    comm::run_threads(2, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {1, 2, 1}, {"dp", "cp", "tp"});
        EXPECT_EQ(mesh.communicator("dp").size(), 1);
        EXPECT_EQ(&mesh.communicator("dp"), &mesh.communicator("tp"));
        EXPECT_EQ(&mesh.communicator("cp"), world.get());
        EXPECT_EQ(mesh.groups_made(), 1);
    });
}

TEST(MeshGroups, ParallelDimsMakesOnlyTheGroupsThatAreUsed) {
    comm::run_threads(4, [](const World& world) {
        const ParallelDims dims({2, 1, 2, 1, 1, 1, 1}, world);
        EXPECT_EQ(dims.world_mesh().groups_made(), 1);
        comm::Communicator& cp = dims.get_mesh("cp").communicator("cp");
        EXPECT_EQ(&dims.get_mesh("fsdp").communicator("fsdp"), &cp);
        EXPECT_EQ(&dims.train_mesh().communicator("cp"), &cp);
        EXPECT_EQ(&dims.get_mesh("loss").communicator("loss_mesh"), world.get());
        EXPECT_EQ(dims.world_mesh().groups_made(), 2);
    });
}

// A mesh over some of the ranks: global ranks stay what they are.
TEST(MeshGroups, MeshOverASplitWorld) {
    comm::run_threads(6, [](const World& world) {
        if (world->rank() == 2 || world->rank() == 4) return;
        const DeviceMesh mesh = DeviceMesh::create(world->split({5, 1, 3, 0}, "four"), {2, 2}, {"dp", "cp"});
        EXPECT_EQ(mesh.ranks(), (std::vector<int>{5, 1, 3, 0}));
        EXPECT_EQ(mesh.rank(), world->rank());
        EXPECT_EQ(mesh.coordinates_of(3), (std::vector<int>{1, 0}));
        EXPECT_EQ(mesh.groups("dp"), (std::vector<std::vector<int>>{{5, 3}, {1, 0}}));
        comm::Communicator& dp = mesh.communicator("dp");
        EXPECT_EQ(dp.global_ranks(), mesh.slice({"dp"}).ranks());
        EXPECT_EQ(gathered_ranks(dp, mesh.rank())[static_cast<std::size_t>(mesh.coordinate("dp"))],
                  mesh.rank());
    });
}

TEST(MeshGroups, SizesMustMultiplyToTheWorld) {
    comm::run_threads(3, [](const World& world) {
        EXPECT_THAT(
            [&] {
                DeviceMesh::create(world, {2, 2}, {"dp", "cp"});
            },
            testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("the sizes must multiply to 3")));
    });
}

}  // namespace
}  // namespace tandem
