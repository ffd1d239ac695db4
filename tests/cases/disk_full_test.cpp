// The disk is full when a night's run would save what it learned.
#include <chrono>
#include <filesystem>

#include "tests/cases/run.h"
#include "tests/support/small_disk.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class DiskFull : public Case {
  protected:
    static constexpr std::size_t kMiB = std::size_t{1} << 20;
    static constexpr seconds kLimit{120};
    // The configuration, the engine's log, the first steps.
    static constexpr std::size_t kForTheBeginning = std::size_t{64} << 10;

    DiskFull() { write_tiny(path("model")); }
    std::vector<std::string> on(const SmallDisk& disk, const std::vector<std::string>& more) const {
        std::vector<std::string> values = {"run.output=" + disk.path()};
        values.insert(values.end(), more.begin(), more.end());
        return train(values);
    }
    // Bytes that a run's checkpoint is said to need, where it is refused.
    std::size_t needed() const {
        const SmallDisk tiny(path("tiny"), 4096);
        const std::string said = ended(on(tiny, {})).text();
        const std::size_t at = said.find("checkpoints need ");
        return at == std::string::npos ? 0 : std::stoull(said.substr(at + 17));
    }
    static bool waits(Program& program) {
        return eventually(
                   [&] {
                       return program.err().find("waits for room") != std::string::npos || !program.running();
                   },
                   kLimit) &&
               program.running();
    }
};

TEST_F(DiskFull, IsSaidBeforeTheFirstStep) {
    const SmallDisk disk(path("small"), 100 << 10);
    const Ended run = ended(on(disk, {"grpo.steps=30"}));
    EXPECT_EQ(run.code, 2) << run.text();
    EXPECT_THAT(run.text(),
                ContainsRegex("run.output: the run's checkpoints need [0-9]+ bytes in '.*/small', 102400 are "
                              "there, [0-9]+ are missing"));
    EXPECT_TRUE(fs::is_empty(disk.path()));
    const Ended kept =
        ended(on(disk, {"checkpoint.every=1", "checkpoint.keep=1000000", "grpo.steps=1000000"}));
    EXPECT_EQ(kept.code, 2) << kept.text();
    EXPECT_THAT(kept.text(), HasSubstr("and 1000000 of "));
}

// Enough for the model and the first lines of the metrics: the model has its room, the other lines wait for
// theirs.
TEST_F(DiskFull, TheModelHasItsRoomAndTheRestComesLater) {
    const std::size_t bytes = needed();
    ASSERT_GT(bytes, 0u);
    const SmallDisk disk(path("small"), 8 * kMiB);
    disk.fill(bytes + kForTheBeginning);
    Program program(on(disk, {"grpo.steps=40"}));
    ASSERT_TRUE(waits(program)) << program.err();
    EXPECT_THAT(
        program.err(),
        AllOf(HasSubstr("metrics.jsonl has no room on the disk: its lines wait in memory"),
              ContainsRegex(
                  "No space left on device; (summary.json|report.html) needs [0-9]+ bytes in .*/run.partial, "
                  "[0-9]+ of them are missing: it stays in memory")));
    EXPECT_TRUE(fs::exists(disk / "run.partial/checkpoint/model.safetensors"));
    disk.clear();
    EXPECT_EQ(program.wait(kLimit), 0) << program.err();
    EXPECT_EQ(timeless_metrics(disk / "run").size(), 42u);  // 40 steps, two evaluations
    EXPECT_TRUE(fs::exists(disk / "run/report.html"));
}

// The weights are whole, though the run has failed.
TEST_F(DiskFull, TheWaitEndsWithOne) {
    const std::size_t bytes = needed();
    const SmallDisk disk(path("small"), 8 * kMiB);
    disk.fill(bytes + kForTheBeginning);
    Program program(on(disk, {"grpo.steps=40", "checkpoint.wait_for_room_s=0.5"}));
    EXPECT_EQ(program.wait(kLimit), 1) << program.err();
    EXPECT_THAT(program.err(),
                AllOf(HasSubstr("no room came in "), HasSubstr("(checkpoint.wait_for_room_s)")));
    EXPECT_TRUE(fs::exists(disk / "run.partial/checkpoint/model.safetensors"));
}

// The room of one checkpoint is kept; that of the many beside it somebody has taken.
TEST_F(DiskFull, ACheckpointToResumeFromWaits) {
    const SmallDisk disk(path("small"), 24 * kMiB);
    // More steps than can be done before the disk is filled, however busy the machine is.
    Program program(
        on(disk, {"grpo.steps=1000000", "checkpoint.every=1", "checkpoint.keep=32", "memory.offload=all"}));
    const std::string metrics = disk / "run.partial/metrics.jsonl";
    ASSERT_TRUE(eventually([&] { return fs::exists(metrics) || !program.running(); }, kLimit));
    disk.fill();
    ASSERT_TRUE(waits(program)) << program.err();
    EXPECT_THAT(program.err(), ContainsRegex("checkpoint step-[0-9]+ needs [0-9]+ bytes in "));
    const std::size_t before = read_file(metrics).size();
    disk.clear();
    EXPECT_TRUE(eventually([&] { return read_file(metrics).size() > before + 1000; }, kLimit))
        << program.err();
    EXPECT_TRUE(program.running()) << program.err();
}

}  // namespace
}  // namespace tandem::test
