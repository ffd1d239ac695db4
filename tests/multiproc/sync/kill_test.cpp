// What killing the engine, or a trainer rank, at a random moment of a stream of syncs leaves behind: no hang,
// no mixed weights, no memory, and a next sync that succeeds.
#include <array>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/job.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

constexpr std::array kWays{Way{Mode::gather}, Way{Mode::gather, true}, Way{Mode::direct}, Way{Mode::alias},
                           Way{Mode::delta}};
constexpr auto kAtOnce = std::chrono::seconds(4);  // a peer that is gone needs no deadline to be missed

class Moments {
  public:
    // The same in every run, but for --gtest_shuffle --gtest_random_seed=N.
    explicit Moments(int seed)
        : random_(static_cast<unsigned>(seed + testing::UnitTest::GetInstance()->random_seed())) {}
    double next() { return std::uniform_real_distribution<>(0, 1)(random_); }
    int below(int n) { return std::uniform_int_distribution<>(0, n - 1)(random_); }

  private:
    std::mt19937 random_;
};

// The ranks live on: each time with a new session and a new engine.
TEST(Kill, AnEngineAtFiftyFiveMoments) {
    Moments moments(5);
    std::map<std::string, int> phases;
    for (const auto& [mode, relayed] : kWays) {
        RoundsJob job(
            {.mode = mode, .mesh = mode == Mode::direct || relayed ? "2,2" : "2", .relayed = relayed});
        for (int round = 0; round < 11; ++round) {
            SCOPED_TRACE(fmt::format("{}{} round {}", mode_name(mode), relayed ? " relayed" : "", round));
            EngineProcess engine(DType::float32, DType::bfloat16);
            job.start({engine.address()});
            ASSERT_TRUE(job.pushed(2)) << job.message(0);
            std::this_thread::sleep_for(job.moment(moments.next()));
            engine.kill();
            ASSERT_TRUE(job.all_failed(kAtOnce));
            for (int rank = 0; rank < job.ranks(); ++rank) {
                EXPECT_THAT(job.message(rank), HasSubstr("failed on rank 0 in phase "));
                EXPECT_THAT(job.message(rank), HasSubstr("engine " + engine.address()));
            }
            const std::string phase = job.message(0).substr(job.message(0).find("phase ") + 6);
            ++phases[phase.substr(0, phase.find_first_of(",: "))];
            EXPECT_FALSE(socket_exists(engine.address()));
        }
        EngineProcess engine(DType::float32, DType::bfloat16);
        job.start({.engine = engine.address(), .pushes = 2, .first = 1001, .last = true});
        const comm::LaunchResult end = job.wait();
        EXPECT_EQ(end.exit_code, 0) << end.message << job.message(0);
        EXPECT_EQ(engine.status().version, 1002);
        EXPECT_EQ(engine.ask("check 1002"), "ok");
        job.end_and_expect_nothing_left(&engine);
    }
    for (const auto& [phase, times] : phases) std::printf("killed in phase %s: %d\n", phase.c_str(), times);
    EXPECT_GE(phases.size(), 2u);
}

// The engine lives on, through jobs of all modes in turn.
TEST(Kill, ARankAtFiftyFiveMoments) {
    Moments moments(9);
    EngineProcess engine(DType::float32, DType::bfloat16);
    int refused = 0;
    for (int round = 0; round < 55; ++round) {
        JobOptions options;
        const Way way = kWays[static_cast<std::size_t>(round) % kWays.size()];
        options.mode = way.mode;
        options.relayed = way.relayed;
        options.mesh = round % 3 == 0 ? "2,2" : "2";
        const int victim = moments.below(options.ranks());
        SCOPED_TRACE(fmt::format("round {}: {}{}, rank {} of {}", round, mode_name(way.mode),
                                 way.relayed ? " relayed" : "", victim, options.ranks()));
        RoundsJob job(options);
        job.start({.engine = engine.address(), .first = 1000 * (round + 1)});
        ASSERT_TRUE(job.pushed(2)) << job.message(0);
        std::this_thread::sleep_for(job.moment(moments.next()));
        ::kill(job.pids()[static_cast<std::size_t>(victim)], SIGKILL);
        const auto killed = Clock::now();
        const comm::LaunchResult end = job.wait();
        EXPECT_LT(Clock::now() - killed, kAtOnce);
        for (const comm::RankExit& rank : end.ranks) {
            if (rank.rank == victim) {
                EXPECT_EQ(rank.signal, SIGKILL);
                continue;
            }
            EXPECT_EQ(rank.exit_code, kJobLost) << "rank " << rank.rank;
            EXPECT_THAT(job.message(rank.rank), HasSubstr(fmt::format("rank {}", victim)));
        }
        EXPECT_THAT(end.message, HasSubstr(fmt::format("rank {}", victim)));
        job.end_and_expect_nothing_left(&engine);
        EXPECT_EQ(engine.whole_or_refusing(), "ok");
        const EngineStatus status = engine.status();
        if (status.refusing)
            ++refused;  // what it says of a version then depends on how far the rank had come
        else
            EXPECT_GE(status.version, 1000 * (round + 1) + 1);
    }
    std::printf("refused after %d of 55\n", refused);
    const comm::LaunchResult end = run({Mode::gather, "2,2"}, "push", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.status().version, 2);
    EXPECT_EQ(engine.ask("check 2"), "ok");
}

}  // namespace
}  // namespace tandem::sync
