// Peers that neither answer nor end: a stopped engine, a stopped rank. Everybody else gives up within the
// deadline and says on whom; when the peer wakes up, the next sync succeeds.
#include <random>
#include <thread>

#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/job.h"

namespace tandem::sync {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kPatienceMs = 600;      // for a phase with the engine; ranks wait twice as long for each other
constexpr milliseconds kSlack{1500};  // for a machine that is busy

// As the test asks for it: a message on every rank that says where the engine `address` went missing.
void expect_messages(const RoundsJob& job, const std::string& address, const std::string& where) {
    for (int rank = 0; rank < job.ranks(); ++rank) {
        EXPECT_THAT(job.message(rank),
                    AllOf(HasSubstr("failed on rank 0 in phase " + where), HasSubstr("engine " + address),
                          HasSubstr("no answer within the deadline")));
    }
}

// The push in hand and every step of giving up may take their time: load, abort.
milliseconds giving_up() {
    return milliseconds(kPatienceMs + kPatienceMs / 2) + kSlack;
}

class HungEngine : public testing::TestWithParam<Way> {
  protected:
    HungEngine()
        : engine_(DType::float32, DType::bfloat16),
          job_({GetParam().mode, "2", DType::float32, kPatienceMs, GetParam().relayed}) {
        job_.start({.engine = engine_.address(), .pushes = 2});
    }
    ~HungEngine() override { engine_.go_on(); }

    // The engine has woken up: with the session that there is, then in a new one, a push succeeds.
    void expect_healed() {
        engine_.go_on();
        job_.start({.pushes = 2});
        EXPECT_TRUE(job_.played()) << job_.message(0);
        job_.start({.engine = engine_.address(), .pushes = 2, .first = 1001, .last = true});
        EXPECT_EQ(job_.wait().exit_code, 0) << job_.message(0);
        EXPECT_EQ(engine_.status().version, 1002);
        EXPECT_EQ(engine_.whole_or_refusing(), "ok");
        EXPECT_FALSE(engine_.status().refusing);
        job_.end_and_expect_nothing_left(&engine_);
    }

    EngineProcess engine_;
    RoundsJob job_;
};

TEST_P(HungEngine, BetweenPushesIsNoticedByTheNextOne) {
    ASSERT_TRUE(job_.played()) << job_.message(0);
    engine_.stop();
    job_.start({.pushes = 1});
    ASSERT_TRUE(job_.all_failed(giving_up()));
    // Delta asks what the engine holds before it pauses it.
    expect_messages(job_, engine_.address(), GetParam().mode == Mode::delta ? "prepare" : "pause");
    expect_healed();
}

class HungEngineInABucket : public HungEngine {};  // alias has none

TEST_P(HungEngineInABucket, IsNamedWithPhaseAndBucket) {
    ASSERT_TRUE(job_.played()) << job_.message(0);
    job_.board()->hold_bucket = 5;
    job_.start({.pushes = 1});
    ASSERT_TRUE(eventually([&] { return job_.board()->held.load(); }));
    engine_.stop();
    job_.board()->hold_bucket = 0;
    ASSERT_TRUE(job_.all_failed(giving_up()));
    expect_messages(job_, engine_.address(), "load, bucket ");
    expect_healed();
}

TEST_P(HungEngine, AtAnyMoment) {
    std::mt19937 random(3 + static_cast<unsigned>(GetParam().mode));
    std::uniform_real_distribution<> uniform(0, 1);
    ASSERT_TRUE(job_.played()) << job_.message(0);
    for (int round = 0; round < 2; ++round) {
        job_.start({});
        ASSERT_TRUE(job_.pushed(2)) << job_.message(0);
        std::this_thread::sleep_for(job_.moment(uniform(random)));
        engine_.stop();
        ASSERT_TRUE(job_.all_failed(giving_up()));
        expect_messages(job_, engine_.address(), "");
        engine_.go_on();
    }
    expect_healed();
}

// The next job's ranks come while the engine still sleeps on what the last job's said.
TEST_P(HungEngine, WakesUpToANewTrainer) {
    ASSERT_TRUE(job_.played()) << job_.message(0);
    engine_.stop();
    job_.start({.pushes = 1, .last = true});
    ASSERT_TRUE(job_.all_failed(giving_up()));
    job_.end_and_expect_nothing_left(nullptr);
    RoundsJob next({GetParam().mode, "2", DType::float32, 5000, GetParam().relayed});
    next.start({.engine = engine_.address(), .pushes = 2, .first = 1001, .last = true});
    std::this_thread::sleep_for(milliseconds(300));
    engine_.go_on();
    EXPECT_EQ(next.wait().exit_code, 0) << next.message(0);
    EXPECT_EQ(engine_.status().version, 1002);
    EXPECT_EQ(engine_.whole_or_refusing(), "ok");
    next.end_and_expect_nothing_left(&engine_);
}

class HungRank : public testing::TestWithParam<Way> {};

TEST_P(HungRank, EndsTheOthersWithinTheirTimeoutByName) {
    EngineProcess engine(DType::float32, DType::bfloat16);
    for (const int victim : {1, 0}) {
        SCOPED_TRACE(fmt::format("rank {}", victim));
        RoundsJob job({GetParam().mode, "2", DType::float32, kPatienceMs, GetParam().relayed});
        job.start({.engine = engine.address(), .first = 1000 * (2 - victim)});
        ASSERT_TRUE(job.pushed(3)) << job.message(0);
        const int pid = job.pids()[static_cast<std::size_t>(victim)];
        ::kill(pid, SIGSTOP);
        const bool gave_up =
            eventually([&] { return job.failed(1 - victim); }, milliseconds(2 * kPatienceMs) + kSlack);
        EXPECT_TRUE(gave_up);
        EXPECT_THAT(job.message(1 - victim), HasSubstr(fmt::format("rank {}", victim)));
        ::kill(pid, SIGCONT);  // it finds out when it wakes up
        const comm::LaunchResult end = job.wait();
        for (const comm::RankExit& rank : end.ranks)
            EXPECT_EQ(rank.exit_code, kJobLost) << "rank " << rank.rank << " signal " << rank.signal;
        job.end_and_expect_nothing_left(&engine);
        EXPECT_EQ(engine.whole_or_refusing(), "ok");
    }
    const comm::LaunchResult end = run({GetParam().mode}, "push", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.ask("check 2"), "ok");
}

const auto kName = [](const testing::TestParamInfo<Way>& info) {
    return std::string(mode_name(info.param.mode)) + (info.param.relayed ? "_relayed" : "");
};
const auto kAll = testing::Values(Way{Mode::gather}, Way{Mode::gather, true}, Way{Mode::direct},
                                  Way{Mode::alias}, Way{Mode::delta});
INSTANTIATE_TEST_SUITE_P(, HungEngine, kAll, kName);
INSTANTIATE_TEST_SUITE_P(, HungEngineInABucket,
                         testing::Values(Way{Mode::gather}, Way{Mode::direct}, Way{Mode::delta}), kName);
INSTANTIATE_TEST_SUITE_P(, HungRank, kAll, kName);

}  // namespace
}  // namespace tandem::sync
