// A rank without its peers: the groups that it would be in, and calls that are checked and return.
#include <gtest/gtest.h>

#include <vector>

#include "common/comm/launch.h"
#include "common/device/counting.h"
#include "common/error.h"
#include "common/mesh/device_mesh.h"

namespace tandem::comm {
namespace {

TEST(Silent, IsARankOfItsGroups) {
    run_counting([] {
        const auto world = silent(5, 8);
        EXPECT_EQ(world->rank(), 5);
        EXPECT_EQ(world->size(), 8);
        const auto group = world->split({1, 5, 7}, "some");
        EXPECT_EQ(group->rank(), 1);
        EXPECT_EQ(group->global_ranks(), (std::vector<int>{1, 5, 7}));
        EXPECT_EQ(group->name(), "some");
        const auto pair = group->split({7, 5}, "pair");
        EXPECT_EQ(pair->rank(), 1);
        EXPECT_THROW(group->split({1, 7}, "of others"), InvalidArgument);
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 4}, {"dp", "tp"});
        EXPECT_EQ(mesh.communicator("tp").global_ranks(), (std::vector<int>{4, 5, 6, 7}));
        EXPECT_EQ(mesh.communicator("dp").rank(), 1);
    });
}

TEST(Silent, CallsReturnAndAreChecked) {
    run_counting([] {
        const auto world = silent(0, 4);
        std::vector<float> values{1, 2};
        const Span all{reinterpret_cast<std::byte*>(values.data()), 8};
        world->all_reduce(all, DType::float32);
        world->broadcast(all, 3);
        world->barrier();
        EXPECT_EQ(values, (std::vector<float>{1, 2}));
        EXPECT_THROW(world->all_gather(ConstSpan(all), all), InvalidArgument);
        EXPECT_THROW(world->broadcast(all, 4), InvalidArgument);
        Stream beside = Stream::make({}, "beside");
        const P2POp op{P2POp::Kind::recv, 1, all};
        EXPECT_EQ(world->p2p(std::span(&op, 1), beside).poll(), Poll::pending);
    });
}

TEST(Silent, MemoryIsTheThreadsOnAnyDevice) {
    run_counting([] {
        const auto world = silent(0, 4);
        const Device gpu{DeviceType::cuda, 0};
        const Buffer a(100, "silent_test", world->memory()), b(50, "silent_test", world->memory(gpu));
        EXPECT_TRUE(b.device() == gpu);
        EXPECT_EQ(memory_stats("silent_test").live_bytes, 150u);
        EXPECT_EQ(solo()->size(), 1);
        const Buffer alone(25, "silent_test", solo()->memory(gpu));
        EXPECT_EQ(memory_stats("silent_test").live_bytes, 175u);
    });
}

TEST(Silent, SharesMemoryAsRanksOfOneHost) {
    run_counting([] {
        const auto world = silent(1, 3);
        ASSERT_TRUE(world->shares_memory());
        EXPECT_FALSE(silent(0, 1)->shares_memory());
        const Buffer own(20, "silent_test", world->memory());
        const std::vector<std::size_t> bytes{10, 20, 0};
        const std::vector<Span> shown = world->show(own.span(), bytes);
        ASSERT_EQ(shown.size(), bytes.size());
        for (std::size_t r = 0; r < bytes.size(); ++r) EXPECT_EQ(shown[r].bytes, bytes[r]);
        EXPECT_EQ(shown[1].data, own.data());
        EXPECT_EQ(memory_stats("silent_test").live_bytes, 20u);
    });
}

TEST(Silent, ThreadsThatComputeHaveNone) {
    EXPECT_THROW(silent(0, 2), InvalidArgument);
}

}  // namespace
}  // namespace tandem::comm
