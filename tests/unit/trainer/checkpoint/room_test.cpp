// Checkpoints on a disk that is full: they wait in memory, and are the same bytes afterwards.
#include "trainer/checkpoint/room.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "common/comm/launch.h"
#include "common/error.h"
#include "tests/support/small_disk.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/trainer/policy/policy_run.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;
using model::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using World = std::shared_ptr<comm::Communicator>;

std::string bytes_of_file(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

RoomWait quick(const std::string& folder, double limit_s) {
    return {
        .what = "the checkpoint", .folder = folder, .bytes = 1, .limit_s = limit_s, .look_every_s = 0.001};
}

TEST(Room, EveryRankWaitsForTheOneThatFoundNone) {
    std::atomic<int> attempts{0};
    comm::run_threads(3, [&](World world) {
        int own = 0;
        write_when_there_is_room(*world, quick("/tmp", 60), [&] {
            ++attempts;
            together(*world, [&] {
                if (++own < 3 && world->rank() == 1) throw SystemError("write x", own == 1 ? ENOSPC : EDQUOT);
            });
        });
        EXPECT_EQ(own, 3);
    });
    EXPECT_EQ(attempts, 9);
}

TEST(Room, TheWaitHasAnEnd) {
    for (const double limit_s : {0.0, 0.02}) {
        std::mutex mutex;
        std::vector<std::string> said;
        comm::run_threads(2, [&](World world) {
            RoomWait wait = quick("/tmp", limit_s);
            wait.bytes = std::uint64_t{1} << 62;
            try {
                write_when_there_is_room(*world, wait, [&] {
                    together(*world, [&] {
                        if (world->rank() == 0)
                            throw fs::filesystem_error("create",
                                                       std::error_code(ENOSPC, std::generic_category()));
                    });
                });
            } catch (const NoRoom& error) {
                const std::lock_guard lock(mutex);
                said.emplace_back(error.what());
            }
        });
        ASSERT_EQ(said.size(), 2u);
        for (const std::string& text : said) {
            EXPECT_THAT(text, AllOf(HasSubstr("the checkpoint needs 4611686018427387904 bytes in /tmp, 46"),
                                    HasSubstr("are missing, and no room came in "),
                                    HasSubstr("No space left on device")));
        }
    }
}

TEST(Room, OtherFailuresAreNotWaitedFor) {
    const World alone = comm::solo();
    EXPECT_THROW(write_when_there_is_room(*alone, quick("/tmp", 60),
                                          [&] { together(*alone, [] { throw SystemError("write", EIO); }); }),
                 SystemError);
    EXPECT_THROW(Reserve("/tmp", std::uint64_t{1} << 62), NoRoom);
}

TEST(Room, IsKept) {
    const TemporaryDirectory folder;
    const test::SmallDisk disk(folder.file("disk"), std::size_t{1} << 20);
    Reserve reserve(disk.path(), std::uint64_t{700} << 10);
    EXPECT_TRUE(reserve.held());
    EXPECT_TRUE(fs::is_empty(disk.path()));
    EXPECT_LE(disk.room(), std::size_t{324} << 10);
    EXPECT_THROW(Reserve(disk.path(), std::uint64_t{400} << 10), NoRoom);
    reserve.release();
    EXPECT_EQ(disk.room(), std::size_t{1} << 20);
}

TEST(Room, ACheckpointThatFindsNoneLeavesNothingAndComesLater) {
    const TemporaryDirectory folder;
    const test::SmallDisk disk(folder.file("disk"), std::size_t{4} << 20);
    comm::run_threads(2, [&](World world) {
        const Policy policy(make_mesh(world, {2, 1}), tiny_config(), PolicyOptions{});
        save_checkpoint(policy, *world, folder.file("right"), {});
        if (world->rank() == 0) disk.fill(8192);
        world->barrier();
        EXPECT_THROW(save_checkpoint(policy, *world, disk / "out", {}), NoRoom);
        const auto entries = [&] { return std::distance(fs::directory_iterator(disk.path()), {}); };
        EXPECT_EQ(world->rank() == 0 ? entries() : 1, 1);

        int attempts = 0;
        write_when_there_is_room(*world, quick(disk.path(), 60), [&] {
            if (++attempts == 2 && world->rank() == 0) disk.clear();
            save_checkpoint(policy, *world, disk / "out", {});
        });
        EXPECT_EQ(attempts, 2);
    });
    const std::string right = bytes_of_file(folder.file("right/model.safetensors"));
    EXPECT_FALSE(right.empty());
    EXPECT_TRUE(right == bytes_of_file(disk / "out/model.safetensors"));
}

TEST(Room, SoDoesOneToResumeFrom) {
    const TemporaryDirectory folder;
    const test::SmallDisk disk(folder.file("disk"), std::size_t{4} << 20);
    comm::run_threads(2, [&](World world) {
        const Policy policy(make_mesh(world, {2, 1}), tiny_config(), PolicyOptions{});
        const auto write = [&](std::int64_t step) {
            TrainingCheckpoint checkpoint;
            checkpoint.folder = disk / "checkpoints";
            checkpoint.manifest.step = step;
            write_training_checkpoint(policy.training_state(), *world, checkpoint);
        };
        write(1);
        if (world->rank() == 0) disk.fill(8192);
        world->barrier();
        EXPECT_THROW(write(2), NoRoom);
        EXPECT_EQ(training_checkpoints(disk / "checkpoints").size(), 1u);
        world->barrier();
        if (world->rank() == 0) {
            EXPECT_EQ(std::distance(fs::directory_iterator(disk / "checkpoints"), {}), 1);
            disk.clear();
        }
        world->barrier();
        write(2);
    });
    for (const std::string& directory : training_checkpoints(disk / "checkpoints"))
        verify(read_manifest(directory), directory);
    EXPECT_EQ(training_checkpoints(disk / "checkpoints").size(), 2u);
}

}  // namespace
}  // namespace tandem::trainer::testing
