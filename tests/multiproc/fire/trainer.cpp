#include "tests/multiproc/fire/trainer.h"

#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/comm/launch.h"
#include "common/log.h"
#include "engine_adapter/connect.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "tests/multiproc/e2e/rig.h"
#include "tests/multiproc/sync/bodies.h"
#include "tests/support/setting.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::fire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using sync::kJobLost;
using test::setting;

constexpr int kRanks = 2;
constexpr milliseconds kEvery{100};
constexpr milliseconds kPatience{kPatienceMs};

class Rank {
  public:
    int run() {
        for (auto next = Clock::now();; next += kEvery) {
            std::this_thread::sleep_until(next);
            next = std::max(next, Clock::now() - kEvery);  // what was missed is not made up for
            const std::int64_t version = next_version();
            if (version == 0) return 0;
            if (session_ || connect()) push(version);
            if (session_ && session_->state() == sync::State::broken) return kJobLost;
        }
    }

  private:
    // The same on all ranks; 0: stop.
    std::int64_t next_version() {
        std::int64_t version = 0;
        if (world_->rank() == 0 && !board_->stop) version = ++board_->version;
        return from_rank_0(version);
    }
    std::int64_t from_rank_0(std::int64_t value) {
        world_->broadcast({reinterpret_cast<std::byte*>(&value), sizeof(value)}, 0);
        return value;
    }

    bool connect() {
        source_.move_home();
        std::unique_ptr<engine::Engine> engine;
        if (world_->rank() == 0) {
            try {
                engine = engine::connect(board_->address.data(), Deadline::after(kPatience),
                                         {.lease = milliseconds(kLeaseMs)});
            } catch (const Error&) {  // none there, or another trainer has it
            }
        }
        if (from_rank_0(engine != nullptr ? 1 : 0) == 0) return false;
        sync::SessionOptions options;
        options.mode = sync::mode_from_name(setting("TEST_MODE"));
        options.bucket_bytes = 4096;
        options.depth = 2;
        sync::Deadlines& deadlines = options.deadlines;
        deadlines.prepare = deadlines.pause = deadlines.begin = deadlines.load = deadlines.commit = kPatience;
        deadlines.abort = deadlines.resume = kPatience / 2;
        deadlines.transfer = 2 * kPatience;
        try {
            session_ = std::make_unique<sync::Session>(world_, source_, std::move(engine), options);
        } catch (const sync::SyncError&) {
            return false;
        }
        if (world_->rank() == 0) ++board_->sessions;
        return true;
    }

    void push(std::int64_t version) {
        const auto start = Clock::now();
        version % 2 == 0 ? source_.move_to_writable(*session_) : source_.move_home();
        source_.hold(sets_.of_version(version));
        bool ok = true;
        try {
            session_->push(version);
        } catch (const sync::SyncError&) {
            ok = false;
        }
        failed_in_a_row_ = ok ? 0 : failed_in_a_row_ + 1;
        if (world_->rank() == 0) {
            ++(ok ? board_->pushes : board_->failures);
            const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
            board_->longest_ms = std::max<std::int64_t>(board_->longest_ms, ms);
        }
        if (failed_in_a_row_ < 2) return;
        failed_in_a_row_ = 0;
        source_.move_home();
        session_.reset();
    }

    BoardMemory board_{setting("TEST_BOARD")};
    std::shared_ptr<comm::Communicator> world_ = [] {
        auto world = comm::connect_from_environment(Deadline::after_ms(20'000));
        world->set_timeout(2 * kPatience);
        return world;
    }();
    e2e::WeightSets sets_{engine::tiny_config(), 3};
    e2e::ShardedSet source_{sets_, DeviceMesh::create(world_, {kRanks}, {"dp"})};
    std::unique_ptr<sync::Session> session_;
    int failed_in_a_row_ = 0;
};

}  // namespace

int run_trainer() {
    set_log_level(LogLevel::error);
    return Rank().run();
}

Trainer::Trainer(sync::Mode mode, const BoardMemory& board)
    : board_(board), keeper_([this, mode] { keep(mode); }) {}

Trainer::~Trainer() {
    kill_for_good();
    if (keeper_.joinable()) keeper_.join();
}

void Trainer::keep(sync::Mode mode) {
    comm::LaunchOptions options;
    options.world_size = kRanks;
    options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--trainer"};
    options.environment = {"TEST_MODE=" + std::string(sync::mode_name(mode)), "TEST_BOARD=" + board_.path()};
    options.grace = milliseconds(200);
    while (!over_ && !board_->stop) {
        comm::RankProcesses ranks(options);
        ++starts_;
        {
            const std::lock_guard lock(mutex_);
            pids_ = ranks.pids();
        }
        const comm::LaunchResult result = ranks.wait([this] { return over_ ? "over" : ""; });
        const std::lock_guard lock(mutex_);
        pids_.clear();
        exit_code_ = result.exit_code;
        for (const comm::RankExit& rank : result.ranks) {
            const bool crashed = rank.signal != 0 && rank.signal != SIGKILL && rank.signal != SIGTERM;
            const bool lost = rank.exit_code == 0 || rank.exit_code == kJobLost;
            if (crashed || !lost)
                crashes_.push_back(fmt::format("trainer rank {}: signal {}, exit code {}; {}", rank.rank,
                                               rank.signal, rank.exit_code, result.message));
        }
    }
}

void Trainer::signal(int rank, int number) {
    const std::lock_guard lock(mutex_);
    if (!pids_.empty()) ::kill(pids_[static_cast<std::size_t>(rank)], number);
}

void Trainer::kill_for_good() {
    over_ = true;
    for (int rank = 0; rank < kRanks; ++rank) signal(rank, SIGKILL);
}

int Trainer::end() {
    keeper_.join();
    return exit_code_;
}

std::vector<std::string> Trainer::crashes() {
    const std::lock_guard lock(mutex_);
    return crashes_;
}

}  // namespace tandem::fire
