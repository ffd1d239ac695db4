// A few threads that share a list of independent jobs: the caller works too and returns when all are done.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/device/stream.h"

namespace tandem::engine {

class WorkerPool {
  public:
    explicit WorkerPool(int threads);  // the caller counts as one
    // Runs job(0) … job(count - 1), each once, on whichever thread is free. Rethrows the first exception
    // after all threads have stopped.
    void run(std::size_t count, const std::function<void(std::size_t)>& job);

  private:
    std::vector<Stream> helpers_;
};

}  // namespace tandem::engine
