// Which GPU of a host ranks and engine take, on three emulated ones.
#include <gtest/gtest.h>

#include "trainer/run/device_choice.h"

namespace tandem::trainer {
namespace {

// Of the ranks of rank 0's host, then of the engine that the run starts.
std::vector<int> gpus_of(const RunConfig& config) {
    std::vector<int> list;
    for (int rank = 0; rank < config.world_size(); ++rank)
        list.push_back(device_of_rank(config, rank, rank).index);
    list.push_back(device_of_engine(config).index);
    return list;
}

RunConfig with_ranks(int ranks, const std::string& transport) {
    RunConfig config;
    config.run.device = "cuda";
    config.mesh.dp = ranks;
    config.sync.transport = transport;
    return config;
}

using List = std::vector<int>;

TEST(DeviceChoice, RanksAndEngineTakeTheGpusInTurn) {
    EXPECT_EQ(gpus_of(with_ranks(1, "auto")), (List{0, 1}));
    EXPECT_EQ(gpus_of(with_ranks(2, "auto")), (List{0, 1, 2}));
    EXPECT_EQ(gpus_of(with_ranks(3, "cuda_ipc")), (List{0, 1, 2, 0}));
    EXPECT_EQ(gpus_of(with_ranks(4, "auto")), (List{0, 1, 2, 0, 1}));
}

TEST(DeviceChoice, OverNcclTheEngineHasOneForItself) {
    EXPECT_EQ(gpus_of(with_ranks(1, "nccl")), (List{0, 1}));
    EXPECT_EQ(gpus_of(with_ranks(2, "nccl")), (List{0, 1, 2}));
    EXPECT_EQ(gpus_of(with_ranks(3, "nccl")), (List{0, 1, 0, 2}));
    EXPECT_EQ(gpus_of(with_ranks(5, "nccl")), (List{0, 1, 0, 1, 0, 2}));
}

TEST(DeviceChoice, WhereNoEngineIsStartedRanksTakeAll) {
    RunConfig config = with_ranks(6, "nccl");
    EXPECT_EQ(device_of_rank(config, 5, 2).index, 2);  // on another host than rank 0
    config.engine.url = "http://127.0.0.1:1";
    EXPECT_EQ(device_of_rank(config, 2, 2).index, 2);
}

TEST(DeviceChoice, OfTheCpuThereIsOne) {
    RunConfig config;
    EXPECT_EQ(device_of_rank(config, 3, 3), Device{});
    EXPECT_EQ(device_of_engine(config), Device{});
}

}  // namespace
}  // namespace tandem::trainer
