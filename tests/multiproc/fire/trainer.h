// A trainer of two ranks that pushes every 100 ms, whatever becomes of the push before: to the session that there is,
// to a new one when two in a row have failed.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sync/strategy/options.h"
#include "tests/multiproc/fire/board.h"

namespace tandem::fire {

// A rank's whole life; its environment says the rest. The exit code; sync::kJobLost, also as a TransportError: the
// ranks cannot go on.
int run_trainer();

// Keeps one such trainer running from construction to end(): starts it anew when it has ended.
class Trainer {
  public:
    Trainer(sync::Mode mode, const BoardMemory& board);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    // To a rank of the trainer that runs now, if one does.
    void signal(int rank, int number);
    // When the board said stop: joins; what the last one ended with.
    int end();
    int starts() const { return starts_; }
    // Ends that no signal of ours explains, as text.
    std::vector<std::string> crashes();

  private:
    void keep(sync::Mode mode);
    void kill_for_good();

    const BoardMemory& board_;
    std::mutex mutex_;
    std::vector<int> pids_;
    std::vector<std::string> crashes_;
    std::atomic<bool> over_{false};
    std::atomic<int> starts_{0};
    int exit_code_ = 0;
    std::thread keeper_;
};

}  // namespace tandem::fire
