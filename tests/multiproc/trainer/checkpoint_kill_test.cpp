// Processes that are killed while they write training checkpoints, at every point that the writer names and
// at moments of chance: the one before, or the one in hand, is always whole, and nothing else stays.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

#include "common/comm/launch.h"
#include "common/error.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr std::int64_t kRows = 301, kColumns = 512;  // 600 KiB a tensor
constexpr int kTensors = 4;

// Every element says which step it is of.
NamedTensors tensors_of(const std::shared_ptr<comm::Communicator>& world, std::int64_t step) {
    const auto mesh = DeviceMesh::create(world, {kRanks}, {"dp"});
    NamedTensors tensors;
    for (int i = 0; i < kTensors; ++i) {
        const ShardRange rows = shard_range(kRows, kRanks, world->rank());
        const Tensor local = Tensor::empty({rows.size, kColumns}, DType::float32, "test");
        for (float& value : local.values<float>()) value = static_cast<float>(step * 10 + i);
        tensors.emplace_back("tensor" + std::to_string(i),
                             DTensor::from_local(local, mesh, {Shard(0)}, {kRows, kColumns}));
    }
    return tensors;
}

class CheckpointKill : public ::testing::Test {
  protected:
    CheckpointKill() { folder_.write("metrics.jsonl", "{}\n"); }

    // Writes steps [first, last]; at(point) is called as often as there are points, on all ranks' threads.
    void write(std::int64_t first, std::int64_t last, const std::function<void(const char*)>& at) const {
        comm::run_threads(kRanks, [&](std::shared_ptr<comm::Communicator> world) {
            for (std::int64_t step = first; step <= last; ++step) {
                TrainingCheckpoint checkpoint;
                checkpoint.folder = checkpoints();
                checkpoint.logs = {folder_.file("metrics.jsonl")};
                checkpoint.keep = 1;
                checkpoint.manifest.step = step;
                checkpoint.at = at;
                write_training_checkpoint(tensors_of(world, step), *world, checkpoint);
            }
        });
    }

    // body in a process of its own, which is expected to die of signal 9, or to end well.
    template <typename Body>
    pid_t start(const Body& body) const {
        std::fflush(nullptr);
        const pid_t child = ::fork();
        if (child != 0) return child;
        body();
        ::_exit(0);
    }
    bool was_killed(pid_t child) const {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
        return WIFSIGNALED(status);
    }

    struct Found {
        std::int64_t step;  // of the newest checkpoint
        std::size_t count;
    };

    // What the next start finds, after one that found `before`.
    Found expect_whole(const Found& before) const {
        clean_up_checkpoints(checkpoints());
        const auto found = training_checkpoints(checkpoints());
        EXPECT_EQ(static_cast<std::ptrdiff_t>(found.size()),
                  std::distance(fs::directory_iterator(checkpoints()), {}))
            << "something else is left";
        EXPECT_GE(found.size(), 1u);
        for (const std::string& directory : found)
            EXPECT_NO_THROW(verify(read_manifest(directory), directory));
        const std::int64_t step = read_manifest(found.at(0)).step;
        EXPECT_GE(step, before.step);
        // The older ones go last: each step that became whole adds one. Two steps further, a write came to its
        // end and left its own alone.
        const auto further = static_cast<std::size_t>(step - before.step);
        EXPECT_LE(found.size(), further > 1 ? 2u : before.count + further);
        comm::run_threads(kRanks, [&](std::shared_ptr<comm::Communicator> world) {
            const NamedTensors tensors = tensors_of(world, 0), expected = tensors_of(world, step);
            read_training_checkpoint(found[0], tensors);
            for (std::size_t i = 0; i < tensors.size(); ++i) {
                EXPECT_EQ(tensors[i].second.local().to_vector<float>(),
                          expected[i].second.local().to_vector<float>());
            }
        });
        return {step, found.size()};
    }

    std::string checkpoints() const { return folder_.file("checkpoints"); }
    model::TemporaryDirectory folder_;
};

TEST_F(CheckpointKill, AtEveryNamedPoint) {
    std::vector<std::string> points;
    std::mutex mutex;
    write(1, 1, [&](const char* point) {
        const std::lock_guard lock(mutex);
        points.emplace_back(point);
    });
    EXPECT_EQ(points.size(), 1u + kRanks * (2u + kTensors) + 4u);
    for (std::size_t nth = 0; nth < points.size(); ++nth) {
        SCOPED_TRACE(nth);
        // Over an existing step 2 as well, which is what a run that went back does.
        if (nth % 2 == 0) fs::remove_all(checkpoints() + "/step-2");
        const pid_t child = start([&] {
            std::atomic<std::size_t> count{0};
            write(2, 2, [&](const char*) {
                if (count++ == nth) ::raise(SIGKILL);
            });
        });
        EXPECT_TRUE(was_killed(child));
        expect_whole({.step = 1, .count = 1});
        write(1, 1, [](const char*) {});
    }
}

TEST_F(CheckpointKill, AtTwentyMomentsOfChance) {
    std::mt19937 random(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()) + 11);
    write(1, 1, [](const char*) {});
    Found found{.step = 1, .count = 1};
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(round);
        const pid_t child = start([&] { write(found.step + 1, found.step + 1000, [](const char*) {}); });
        std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 60'000));
        ::kill(child, SIGKILL);
        EXPECT_TRUE(was_killed(child));
        found = expect_whole(found);
    }
    std::printf("20 kills, up to checkpoint %lld\n", static_cast<long long>(found.step));
}

}  // namespace
}  // namespace tandem::trainer::testing
