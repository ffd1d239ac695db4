// Signals that end a server: before it serves they end the process, afterwards the first is for it to end in order.
#include "engine_adapter/embedded/ending_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "tests/support/eventually.h"
#include "tests/support/forked.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::engine {
namespace {

using test::Forked;  // signals are a process's

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
    Forked child([&](const std::string&) {
        EndingSignals signals;
        make("socket");
        const auto tidied = signals.before_the_end([&] { std::filesystem::remove(folder_.file("socket")); });
        make("stuck");
        ::sleep(600);
        return 0;
    });
    child.tell();
    ASSERT_TRUE(appears("stuck"));
    child.signal(GetParam());
    EXPECT_EQ(child.end(), 128 + GetParam());
    EXPECT_FALSE(there("socket"));
}

TEST_P(EndingSignal, IsWaitedForOnceSomethingServesAndTheSecondEndsAtOnce) {
    Forked child([&](const std::string&) {
        EndingSignals signals;
        signals.serving();
        make("serving");
        make(signals.wait() == GetParam() ? "right" : "wrong");
        ::sleep(600);
        return 0;
    });
    child.tell();
    ASSERT_TRUE(appears("serving"));
    child.signal(GetParam());
    ASSERT_TRUE(appears("right"));
    child.signal(SIGTERM);
    EXPECT_EQ(child.end(), 128 + SIGTERM);
}

TEST(EndingSignals, AStartThatFailsIsNotWaitedFor) {
    Forked child([](const std::string&) {
        try {
            EndingSignals signals;
            const auto tidied = signals.before_the_end([] { ::_exit(9); });
            throw std::runtime_error("no such model");
        } catch (const std::runtime_error&) {
            return 1;
        }
    });
    EXPECT_EQ(child.act(), 1);
}

TEST(EndingSignals, AHangupThatIsIgnoredStaysIgnored) {
    Forked child([](const std::string&) {
        std::signal(SIGHUP, SIG_IGN);
        EndingSignals signals;
        signals.serving();
        ::kill(::getpid(), SIGHUP);
        ::kill(::getpid(), SIGTERM);
        return signals.wait() == SIGTERM ? 0 : 1;
    });
    EXPECT_EQ(child.act(), 0);
}

}  // namespace
}  // namespace tandem::engine
