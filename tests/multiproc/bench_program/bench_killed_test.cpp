// What is left when a part of `tandem-sync bench` is killed.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/multiproc/bench_program/bench_program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

// A bench that would run for minutes: two ranks, two engine-side processes.
class LongBench : public BenchProgram {
  protected:
    LongBench()
        : program_(bench("gather", {"--engine-tp", "2", "--iterations", "100000", "--trace",
                                    folder_ / "trace.json", "--html", folder_ / "page.html"}),
                   environment()) {
        EXPECT_TRUE(eventually([this] { return find_children() && sockets() > 0; })) << program_.err();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // syncs are under way
    }

    bool find_children() {
        ranks_.clear();
        engines_.clear();
        for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", program_.pid()))) {
            std::istringstream pids(read_file(task.path() / "children"));
            for (pid_t child; pids >> child;) {
                const std::string line = read_file(fmt::format("/proc/{}/cmdline", child));
                if (line.find("bench-rank") != std::string::npos) ranks_.push_back(child);
                if (line.find("bench-engine") != std::string::npos) engines_.push_back(child);
            }
        }
        return ranks_.size() == 2 && engines_.size() == 2;
    }
    // Of the engine-side processes.
    int sockets() const {
        int found = 0;
        std::ifstream file("/proc/net/unix");
        for (std::string line; std::getline(file, line);) {
            for (const pid_t pid : engines_)
                found += line.find(fmt::format("@tandem-{}-", pid)) != std::string::npos ? 1 : 0;
        }
        return found;
    }
    void expect_nothing_left() {
        EXPECT_TRUE(eventually([this] {
            const auto ended = [](pid_t pid) { return !alive(pid); };
            return std::all_of(ranks_.begin(), ranks_.end(), ended) &&
                   std::all_of(engines_.begin(), engines_.end(), ended);
        }));
        // A process counts as ended with its first thread; its files go with the last.
        EXPECT_TRUE(eventually([this] { return sockets() == 0; })) << sockets();
        EXPECT_TRUE(folder_.empty());
    }

    Folder folder_;
    Program program_;
    std::vector<pid_t> ranks_;
    std::vector<pid_t> engines_;
};

TEST_F(LongBench, KilledLeavesNoProcessAndNoFile) {
    program_.kill(SIGKILL);
    EXPECT_EQ(program_.wait(), -SIGKILL);
    expect_nothing_left();
}

TEST_F(LongBench, EndsWhenARankIsKilled) {
    ::kill(ranks_[1], SIGKILL);
    EXPECT_EQ(program_.wait(std::chrono::seconds(15)), 1);
    EXPECT_THAT(program_.err(), HasSubstr("was killed by signal 9"));
    EXPECT_THAT(program_.out(), IsEmpty());
    expect_nothing_left();
}

TEST_F(LongBench, EndsWhenAnEngineSideIsKilled) {
    ::kill(engines_[1], SIGKILL);
    EXPECT_EQ(program_.wait(std::chrono::seconds(15)), 1);
    EXPECT_THAT(program_.err(), HasSubstr("engine"));
    EXPECT_THAT(program_.out(), IsEmpty());
    expect_nothing_left();
}

}  // namespace
}  // namespace tandem::test
