// Signals that end a server: before it serves they end the process, afterwards the first is for it to end in order.
#include "engine_adapter/embedded/ending_signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "tests/support/eventually.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::engine {
namespace {

// A process of its own: signals are a process's. `body` returns the exit code.
class Child {
  public:
    explicit Child(const std::function<int()>& body) : pid_(::fork()) {
        if (pid_ == 0) ::_exit(body());
    }
    ~Child() {
        if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    void signal(int number) const { ::kill(pid_, number); }
    // Exit code, or 128 + the signal that ended it; -1: it lives on.
    int end() {
        int status = 0;
        if (!test::eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

  private:
    pid_t pid_;
};

class EndingSignal : public testing::TestWithParam<int> {
  protected:
    bool there(const std::string& name) const { return std::filesystem::exists(folder_.file(name)); }
    void make(const std::string& name) const { std::ofstream(folder_.file(name)) << name; }
    bool appears(const std::string& name) const {
        return test::eventually([&] { return there(name); });
    }
    const model::TemporaryDirectory folder_;
};

INSTANTIATE_TEST_SUITE_P(All, EndingSignal, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_P(EndingSignal, EndsAStartThatIsStuckAndWhatItWouldLeave) {
    Child child([&] {
        EndingSignals signals;
        make("socket");
        const auto tidied = signals.before_the_end([&] { std::filesystem::remove(folder_.file("socket")); });
        make("stuck");
        ::sleep(600);
        return 0;
    });
    ASSERT_TRUE(appears("stuck"));
    child.signal(GetParam());
    EXPECT_EQ(child.end(), 128 + GetParam());
    EXPECT_FALSE(there("socket"));
}

TEST_P(EndingSignal, IsWaitedForOnceSomethingServesAndTheSecondEndsAtOnce) {
    Child child([&] {
        EndingSignals signals;
        signals.serving();
        make("serving");
        make(signals.wait() == GetParam() ? "right" : "wrong");
        ::sleep(600);
        return 0;
    });
    ASSERT_TRUE(appears("serving"));
    child.signal(GetParam());
    ASSERT_TRUE(appears("right"));
    child.signal(SIGTERM);
    EXPECT_EQ(child.end(), 128 + SIGTERM);
}

TEST(EndingSignals, AStartThatFailsIsNotWaitedFor) {
    Child child([] {
        try {
            EndingSignals signals;
            const auto tidied = signals.before_the_end([] { ::_exit(9); });
            throw std::runtime_error("no such model");
        } catch (const std::runtime_error&) {
            return 1;
        }
    });
    EXPECT_EQ(child.end(), 1);
}

TEST(EndingSignals, AHangupThatIsIgnoredStaysIgnored) {
    Child child([] {
        std::signal(SIGHUP, SIG_IGN);
        EndingSignals signals;
        signals.serving();
        ::kill(::getpid(), SIGHUP);
        ::kill(::getpid(), SIGTERM);
        return signals.wait() == SIGTERM ? 0 : 1;
    });
    EXPECT_EQ(child.end(), 0);
}

}  // namespace
}  // namespace tandem::engine
