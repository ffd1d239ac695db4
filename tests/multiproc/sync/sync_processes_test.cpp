// The sync with every part in its own process: what lands, what a corrupted bucket does, and what killing the
// engine or a rank at a random moment leaves behind.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "common/comm/launch.h"
#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/engine_process.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

constexpr const char* kBucket = "65536";

struct Job {
    std::string mesh = "2";
    int ranks = 2;
    DType source = DType::float32;
    int first_version = 1;
};

comm::LaunchOptions launch(const Job& job, const std::string& body, const std::string& engine) {
    comm::LaunchOptions options;
    options.world_size = job.ranks;
    options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--rank", body};
    options.environment = {"TEST_MESH=" + job.mesh, "TEST_SOURCE=" + std::string(dtype_name(job.source)),
                           "TEST_ENGINE=" + engine, std::string("TEST_BUCKET=") + kBucket,
                           "TEST_FIRST=" + std::to_string(job.first_version)};
    return options;
}

comm::LaunchResult run(const Job& job, const std::string& body, const std::string& engine) {
    comm::RankProcesses ranks(launch(job, body, engine));
    return ranks.wait();
}

bool socket_exists(const std::string& address) {
    const std::string name = address.substr(address.find(':') + 1);
    std::ifstream file("/proc/net/unix");
    for (std::string line; std::getline(file, line);) {
        if (line.find(name) != std::string::npos) return true;
    }
    return false;
}

// Staging arenas that a process still maps.
int staging_arenas(int pid) {
    int found = 0;
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
        found += line.find("tandem:staging") != std::string::npos ? 1 : 0;
    }
    return found;
}

// An arena has no name: it is gone when its last process is, or has unmapped it.
void expect_nothing_left(const std::vector<int>& ranks, EngineProcess* engine) {
    for (const int pid : ranks) EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", pid)));
    EXPECT_EQ(staging_arenas(::getpid()), 0);
    if (engine == nullptr) return;
    for (int i = 0; i < 500 && staging_arenas(engine->pid()) > 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(staging_arenas(engine->pid()), 0);
}

// The engine either refuses, or holds exactly the version that it says.
void expect_whole_or_refusing(EngineProcess& engine) {
    std::string word;
    int version = 0;
    int refusing = 0;
    std::istringstream(engine.ask("status")) >> word >> version >> word >> refusing;
    if (refusing == 0 && version > 0) {
        EXPECT_EQ(engine.ask("check " + std::to_string(version)), "ok");
    }
}

TEST(SyncProcesses, EveryMeshAndCastLandsByteForByte) {
    for (const auto& [mesh, ranks] : {std::pair{"1,1", 1}, {"2,1", 2}, {"2,2", 4}}) {
        for (const auto& [source, held] :
             {std::pair{DType::float32, DType::bfloat16}, {DType::float32, DType::float32}}) {
            SCOPED_TRACE(std::string(mesh) + " " + std::string(dtype_name(held)));
            EngineProcess engine(source, held);
            const comm::LaunchResult end = run({mesh, ranks, source}, "push", engine.address());
            EXPECT_EQ(end.exit_code, 0) << end.message;
            EXPECT_EQ(engine.ask("status"), "version 2 refusing 0");
            EXPECT_EQ(engine.ask("check 2"), "ok");
            EXPECT_THAT(engine.ask("check 1"), HasSubstr("is not of step 1"));
        }
    }
}

TEST(SyncProcesses, ACorruptedBucketFailsByNameAndTheNextPushSucceeds) {
    EngineProcess engine(DType::float32, DType::bfloat16);
    const comm::LaunchResult end = run({"2,2", 4}, "corrupt", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.ask("status"), "version 3 refusing 0");
    EXPECT_EQ(engine.ask("check 2"), "ok");  // version 3 pushed the values of step 2
}

TEST(SyncProcesses, AKilledEngineEndsThePushOnEveryRankAndANewOneTakesOver) {
    std::mt19937 random(5);
    for (int round = 0; round < 8; ++round) {
        SCOPED_TRACE(fmt::format("round {}", round));
        auto engine = std::make_unique<EngineProcess>(DType::float32, DType::bfloat16);
        const std::string address = engine->address();
        comm::RankProcesses ranks(launch({}, "forever", address));
        const std::vector<int> pids = ranks.pids();
        std::thread killer([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 300));
            engine->kill();
        });
        const comm::LaunchResult end = ranks.wait();
        killer.join();
        for (const comm::RankExit& rank : end.ranks)
            EXPECT_EQ(rank.exit_code, kSyncFailed) << "rank " << rank.rank;
        EXPECT_FALSE(socket_exists(address));
        expect_nothing_left(pids, nullptr);
    }
    EngineProcess next(DType::float32, DType::bfloat16);
    EXPECT_EQ(run({}, "push", next.address()).exit_code, 0);
    EXPECT_EQ(next.ask("check 2"), "ok");
}

TEST(SyncProcesses, AKilledRankEndsTheJobAndTheEngineNeverServesAMixture) {
    std::mt19937 random(9);
    EngineProcess engine(DType::float32, DType::bfloat16);
    for (int round = 0; round < 8; ++round) {
        SCOPED_TRACE(fmt::format("round {}", round));
        Job job;
        job.first_version = 1000 * (round + 1);
        comm::RankProcesses ranks(launch(job, "forever", engine.address()));
        const std::vector<int> pids = ranks.pids();
        const auto victim = static_cast<std::size_t>(round % 2);
        std::thread killer([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 300));
            ::kill(pids.at(victim), SIGKILL);
        });
        const auto start = Clock::now();
        const comm::LaunchResult end = ranks.wait();
        killer.join();
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(15));
        EXPECT_EQ(end.ranks.at(victim).signal, SIGKILL);
        EXPECT_NE(end.ranks.at(1 - victim).exit_code, 0);
        EXPECT_THAT(end.message, HasSubstr(fmt::format("rank {}", victim)));
        expect_nothing_left(pids, &engine);
        expect_whole_or_refusing(engine);
    }
    const comm::LaunchResult end = run({"2,2", 4}, "push", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.ask("status"), "version 2 refusing 0");
    EXPECT_EQ(engine.ask("check 2"), "ok");
}

TEST(SyncProcesses, ThreeHundredPushesKeepDescriptorsAndMemoryFlat) {
    EngineProcess engine(DType::float32, DType::bfloat16);
    const comm::LaunchResult end = run({}, "many", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.ask("status"), "version 300 refusing 0");
}

}  // namespace
}  // namespace tandem::sync

// The test binary is also its own engine and its own ranks.
int main(int argc, char** argv) {
    try {
        if (argc == 4 && std::string(argv[1]) == "--engine")
            return tandem::sync::run_engine(argv[2], argv[3]);
        if (argc == 3 && std::string(argv[1]) == "--rank") return tandem::sync::run_body(argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
        return 1;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
