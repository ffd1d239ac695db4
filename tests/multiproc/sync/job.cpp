#include "tests/multiproc/sync/job.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "common/error.h"
#include "tests/multiproc/sync/footprint.h"

namespace tandem::sync {

using testing::ElementsAre;
using testing::IsEmpty;

int JobOptions::ranks() const {
    int count = 1;
    std::istringstream words(mesh);
    for (std::string size; std::getline(words, size, ',');) count *= std::stoi(size);
    return count;
}

comm::LaunchOptions launch(const JobOptions& job, const std::string& body, const std::string& engine,
                           const std::vector<std::string>& more) {
    comm::LaunchOptions options;
    options.world_size = job.ranks();
    options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--rank", body};
    options.environment = {"TEST_MESH=" + job.mesh,
                           "TEST_SOURCE=" + std::string(dtype_name(job.source)),
                           "TEST_MODE=" + std::string(mode_name(job.mode)),
                           "TEST_ENGINE=" + engine,
                           "TEST_BUCKET=" + std::to_string(kBucket),
                           "TEST_PATIENCE=" + std::to_string(job.patience_ms),
                           std::string("TEST_RELAYED=") + (job.relayed ? "1" : "0")};
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    return options;
}

comm::LaunchResult run(const JobOptions& job, const std::string& body, const std::string& engine,
                       const std::vector<std::string>& more) {
    comm::RankProcesses ranks(launch(job, body, engine, more));
    return ranks.wait();
}

RoundsJob::RoundsJob(const JobOptions& options) : options_(options) {
    processes_ =
        std::make_unique<comm::RankProcesses>(launch(options, "rounds", "", {"TEST_BOARD=" + board_.path()}));
    pids_ = processes_->pids();
}

void RoundsJob::start(const Round& round) {
    pushes_before_.clear();
    failures_before_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
        pushes_before_.push_back(part(rank).pushes);
        failures_before_.push_back(part(rank).failures);
    }
    board_->engine.fill('\0');
    std::copy(round.engine.begin(), round.engine.end(), board_->engine.begin());
    board_->pushes = round.pushes;
    board_->first = round.first;
    board_->last = round.last;
    ++board_->round;
}

bool RoundsJob::reach(const std::function<bool(int)>& there) {
    bool bad = false;
    const bool in_time = eventually([&] {
        bool all = true;
        for (int rank = 0; rank < ranks(); ++rank) {
            bad = bad || failed(rank);
            all = all && there(rank);
        }
        return bad || all;
    });
    return in_time && !bad;
}

bool RoundsJob::pushed(int pushes) {
    return reach([&](int rank) {
        return part(rank).pushes >= pushes_before_[static_cast<std::size_t>(rank)] + pushes;
    });
}

bool RoundsJob::played() {
    return reach([this](int rank) { return part(rank).rounds == board_->round; });
}

bool RoundsJob::failed(int rank) const {
    return part(rank).failures == failures_before_[static_cast<std::size_t>(rank)] + 1;
}

bool RoundsJob::all_failed(std::chrono::milliseconds limit) {
    return eventually(
        [&] {
            for (int rank = 0; rank < ranks(); ++rank) {
                if (!failed(rank)) return false;
            }
            return true;
        },
        limit);
}

std::chrono::microseconds RoundsJob::moment(double random) const {
    return std::chrono::microseconds(
        static_cast<std::int64_t>(3 * random * static_cast<double>(part(0).took)));
}

bool socket_exists(const std::string& address) {
    const std::string name = address.substr(address.find(':') + 1);
    std::ifstream file("/proc/net/unix");
    for (std::string line; std::getline(file, line);) {
        if (line.find(name) != std::string::npos) return true;
    }
    return false;
}

void expect_released(EngineProcess& engine) {
    EXPECT_TRUE(eventually([&] { return sockets_of(engine.pid()) == 1; }));  // the one that listens
    if (engine.status().in_place) {
        EXPECT_THAT(shared_memory_of(engine.pid()), ElementsAre("alias arena"));
    } else {
        EXPECT_THAT(shared_memory_of(engine.pid()), IsEmpty());
    }
}

void RoundsJob::end_and_expect_nothing_left(EngineProcess* engine) {
    processes_.reset();
    for (const int pid : pids_) EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", pid)));
    EXPECT_THAT(shared_memory_of(::getpid()), IsEmpty());
    test::expect_no_shared_memory_left(named_before_);
    if (engine != nullptr) expect_released(*engine);
}

}  // namespace tandem::sync
