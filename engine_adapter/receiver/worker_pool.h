// A few threads that share a list of independent jobs; the caller returns when all are done.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/device/stream.h"

namespace tandem::engine {

class WorkerPool {
  public:
    explicit WorkerPool(int threads);  // the caller counts as one
    ~WorkerPool();
    // Runs job(0) … job(count - 1), each once, on whichever thread is free, the caller's among them. Rethrows the first
    // exception after all threads have stopped.
    void run(std::size_t count, const std::function<void(std::size_t)>& job);
    // The same, job i by a thread that stays on core(i), while the caller waits; on whichever is free where those are more
    // cores than threads. A thread that may not use its core runs elsewhere. meanwhile: called by the caller while it waits,
    // every few milliseconds; does not throw.
    void run_on(const std::function<int(std::size_t)>& core, std::size_t count,
                const std::function<void(std::size_t)>& job, const std::function<void()>& meanwhile = {});
    // Whether each of these cores has a thread from here on.
    bool hold(const std::function<int(std::size_t)>& core, std::size_t count);

  private:
    void wait(const std::function<void()>& meanwhile);

    class CoreThread;

    std::vector<Stream> helpers_;
    // Threads of on_core_ that have a task.
    struct Left {
        std::mutex mutex;
        std::condition_variable none;
        std::size_t threads = 0;
        void end_one();
    } left_;
    std::map<int, std::unique_ptr<CoreThread>> on_core_;
};

}  // namespace tandem::engine
