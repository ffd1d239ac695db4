// The test's side: rank processes that do as the board says, and what must be gone when they are.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "sync/session/modes.h"
#include "tests/multiproc/sync/board.h"
#include "tests/multiproc/sync/engine_process.h"
#include "tests/support/eventually.h"
#include "tests/support/named_shared_memory.h"

namespace tandem::sync {

using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kBucket = 65536;

// How versions go.
struct Way {
    Mode mode;
    bool relayed = false;  // JobOptions
};

struct JobOptions {
    Mode mode = Mode::gather;
    std::string mesh = "2";
    DType source = DType::float32;
    int patience_ms = 5000;
    // gather: ranks on two cores, whose buckets go by a relay; else rank 0 sees each bucket, and may hold it.
    bool relayed = false;

    int ranks() const;
};

// How a rank of these tests is started.
comm::LaunchOptions launch(const JobOptions& options, const std::string& body, const std::string& engine,
                           const std::vector<std::string>& more = {});
comm::LaunchResult run(const JobOptions& options, const std::string& body, const std::string& engine,
                       const std::vector<std::string>& more = {});

using test::eventually;

struct Round {
    std::string engine = {};  // address; empty: with the session that there is
    int pushes = 0;           // 0: until one fails
    std::int64_t first = 0;   // version
    bool last = false;
};

// Ranks that play rounds (bodies.h).
class RoundsJob {
  public:
    explicit RoundsJob(const JobOptions& options);

    void start(const Round& round);
    // Every rank has made that many more pushes since the round began; false when one failed.
    bool pushed(int pushes);
    bool played();  // the round is over, its weights compared; false when a rank failed
    bool failed(int rank) const;
    bool all_failed(std::chrono::milliseconds limit);  // each rank once more since the round began
    // A moment from now until the end of the third sync from now, by how long the last one took.
    std::chrono::microseconds moment(double random_0_1) const;
    std::string message(int rank) const {
        return board_->ranks[static_cast<std::size_t>(rank)].message.data();
    }

    const BoardMemory& board() const { return board_; }
    const std::vector<int>& pids() const { return pids_; }
    int ranks() const { return options_.ranks(); }
    comm::LaunchResult wait() { return processes_->wait(); }
    // Ends; then no rank is left, no memory of the job in this process, none in `engine` beyond what it reads
    // its weights from.
    void end_and_expect_nothing_left(EngineProcess* engine);

  private:
    bool reach(const std::function<bool(int rank)>& there);  // false when a rank failed first
    Board::RankPart& part(int rank) const { return board_->ranks[static_cast<std::size_t>(rank)]; }

    const std::set<std::string> named_before_ = test::named_shared_memory();
    JobOptions options_;
    BoardMemory board_;
    std::unique_ptr<comm::RankProcesses> processes_;
    std::vector<int> pids_;
    std::vector<int> pushes_before_;
    std::vector<int> failures_before_;
};

bool socket_exists(const std::string& address);
// The engine has noticed that its trainer is gone, and let go of that one's memory.
void expect_released(EngineProcess& engine);

}  // namespace tandem::sync
