// Work in order on a thread of its own, bounded: what would keep the server's thread from its other clients.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

#include "common/thread.h"

namespace tandem::engine {

class Background {
  public:
    // At most that many pieces of work wait.
    explicit Background(std::size_t most);
    ~Background();  // ends the one that runs; those that wait are dropped
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    // False: too many wait. `work` must not throw.
    bool post(std::function<void()> work);
    // However many wait: for what is bounded elsewhere, as the answers to requests that were taken.
    void add(std::function<void()> work);

  private:
    void run();

    const std::size_t most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    bool stopping_ = false;
    Thread thread_;
};

}  // namespace tandem::engine
