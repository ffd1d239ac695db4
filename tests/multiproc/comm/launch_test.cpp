// The launcher: ranks that die, refuse to die, leave children, come late; and nothing stays behind.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "common/error.h"
#include "common/store/store.h"
#include "tests/multiproc/comm/bodies.h"
#include "tests/support/named_shared_memory.h"

namespace tandem::comm {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The communicator's deadline is 60 s: what ends before it ended for another reason, on a busy machine too.
constexpr auto kLongBeforeTheDeadline = std::chrono::seconds(40);

// Open memfds of this process, by name.
std::vector<std::string> open_memfds() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const auto target = std::filesystem::read_symlink(entry.path(), error).string();
        if (target.find("memfd:") != std::string::npos) found.push_back(target);
    }
    return found;
}

bool group_exists(int pgid) {
    return ::kill(-pgid, 0) == 0;
}

class Launch : public ::testing::Test {
  protected:
    void SetUp() override {
        told_ = ::testing::TempDir() + "told_" + std::to_string(::getpid());
        std::filesystem::remove(told_);
        ::setenv("TANDEM_TEST_TOLD", told_.c_str(), 1);
    }
    void TearDown() override {
        std::filesystem::remove(told_);
        test::expect_no_shared_memory_left(named_before_);
        EXPECT_THAT(open_memfds(), ::testing::IsEmpty());
    }
    std::vector<std::string> told() const {
        std::vector<std::string> lines;
        std::ifstream file(told_);
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        return lines;
    }
    // Waits until the ranks have written so many lines.
    void wait_for_lines(std::size_t count) const {
        const auto deadline = Deadline::after_ms(20'000);
        while (told().size() < count && !deadline.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_GE(told().size(), count);
    }

    std::string told_;
    const std::set<std::string> named_before_ = test::named_shared_memory();
};

TEST_F(Launch, KilledRankEndsTheJobNamingIt) {
    const auto start = Clock::now();
    LaunchResult result;
    int pgid = 0;
    {
        RankProcesses ranks(self_launch(4, "killed_in_the_middle"));
        pgid = ranks.pids().at(0);
        result = ranks.wait();
    }
    EXPECT_LT(Clock::now() - start, kLongBeforeTheDeadline);
    EXPECT_EQ(result.message, "rank 2 was killed by signal 9 (Killed)");
    EXPECT_EQ(result.exit_code, 1);
    ASSERT_EQ(result.ranks.size(), 4U);
    EXPECT_TRUE(result.ranks[2].first);
    EXPECT_EQ(result.ranks[2].signal, SIGKILL);
    for (const int other : {0, 1, 3}) {
        EXPECT_EQ(result.ranks[static_cast<std::size_t>(other)].exit_code,
                  1);  // they threw, nobody had to kill them
        EXPECT_FALSE(result.ranks[static_cast<std::size_t>(other)].first);
    }
    EXPECT_THAT(told(),
                ::testing::AllOf(::testing::SizeIs(3),
                                 ::testing::Each(HasSubstr("rank 2 was killed by signal 9 (Killed)"))));
    EXPECT_FALSE(group_exists(pgid));
}

TEST_F(Launch, ExitCodeOfTheFirstThatFailed) {
    const LaunchResult result = RankProcesses(self_launch(3, "exits_with_7")).wait();
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(result.message, "rank 1 exited with code 7");
    EXPECT_TRUE(result.ranks[1].first);
}

TEST_F(Launch, GraceThenTermThenKill) {
    const auto start = Clock::now();
    const LaunchResult result = RankProcesses(self_launch(3, "deaf_to_sigterm")).wait();
    const auto took = Clock::now() - start;
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.ranks[0].signal, SIGKILL);  // was deaf
    EXPECT_EQ(result.ranks[2].signal, SIGTERM);
    EXPECT_GT(took, std::chrono::milliseconds(3500));  // grace 1.5 s, then 2 s
    EXPECT_LT(took, kLongBeforeTheDeadline);
}

TEST_F(Launch, NothingOfTheGroupStays) {
    RankProcesses ranks(self_launch(2, "leaves_a_child"));
    const int pgid = ranks.pids().at(0);
    EXPECT_EQ(ranks.wait().exit_code, 0);
    // Killed, then reaped by init.
    const auto deadline = Deadline::after_ms(5000);
    while (group_exists(pgid) && !deadline.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(group_exists(pgid));
}

TEST_F(Launch, KeepGoingEndsTheJob) {
    RankProcesses ranks(self_launch(2, "works_for_ever"));
    wait_for_lines(2);
    const LaunchResult result = ranks.wait([] { return std::string("engine died"); });
    EXPECT_EQ(result.message, "engine died");
    EXPECT_EQ(result.exit_code, 1);
    for (const auto& rank : result.ranks) EXPECT_EQ(rank.exit_code, 1);  // by their exception
}

TEST_F(Launch, TerminateEndsTheJob) {
    RankProcesses ranks(self_launch(2, "works_for_ever"));
    wait_for_lines(2);
    ranks.terminate("interrupted");
    EXPECT_EQ(ranks.wait().message, "interrupted");
}

TEST_F(Launch, DestructionEndsTheRanks) {
    int pgid = 0;
    const auto start = Clock::now();
    {
        RankProcesses ranks(self_launch(2, "deaf_to_sigterm"));
        pgid = ranks.pids().at(0);
    }
    EXPECT_FALSE(group_exists(pgid));
    EXPECT_LT(Clock::now() - start, kLongBeforeTheDeadline);
}

TEST_F(Launch, LateRankIsNamed) {
    const LaunchResult result = RankProcesses(self_launch(3, "late_rank")).wait();
    EXPECT_THAT(result.message, HasSubstr("barrier on 'world' with rank 1: not there after 0.5 s"));
    EXPECT_EQ(result.exit_code, 1);
}

TEST_F(Launch, RankThatLeavesEarlyIsNamed) {
    const auto start = Clock::now();
    const LaunchResult result = RankProcesses(self_launch(3, "leaves_early")).wait();
    EXPECT_THAT(result.message, HasSubstr("rank 1 aborted: its process has ended"));
    EXPECT_EQ(result.ranks[1].exit_code, 0);
    EXPECT_LT(Clock::now() - start, kLongBeforeTheDeadline);
}

TEST_F(Launch, ARankIsTakenOnce) {
    const LaunchResult result = RankProcesses(self_launch(1, "second_connection")).wait();
    EXPECT_EQ(result.exit_code, 1);
}

TEST_F(Launch, CommandThatCannotRun) {
    LaunchOptions options = self_launch(2, "x");
    options.command = {"/nonexistent/program"};
    try {
        RankProcesses ranks(options);
        FAIL() << "no exception";
    } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), HasSubstr("exec of '/nonexistent/program': No such file"));
    }
}

// kill -9 of a launcher: its ranks die with it, although they are in a process group of their own.
TEST_F(Launch, RanksDieWithTheLauncher) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    RankProcesses outer(self_launch(1, "launcher_of_its_own"));
    wait_for_lines(2);
    const int launcher = outer.pids().at(0);
    std::vector<int> inner;
    std::ifstream children("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                           "/children");
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(launcher) + "/task")) {
        std::ifstream list(task.path() / "children");
        for (int pid = 0; list >> pid;) inner.push_back(pid);
    }
    ASSERT_EQ(inner.size(), 2U);
    ::kill(launcher, SIGKILL);
    EXPECT_EQ(outer.wait().message, "rank 0 was killed by signal 9 (Killed)");
    for (const int pid : inner) {
        int status = 0;
        ASSERT_EQ(::waitpid(pid, &status, 0), pid);  // handed to this process, the subreaper
        EXPECT_EQ(WTERMSIG(status), SIGKILL);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace tandem::comm
