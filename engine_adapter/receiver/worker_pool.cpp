#include "engine_adapter/receiver/worker_pool.h"

#include <atomic>
#include <exception>
#include <mutex>

namespace tandem::engine {

WorkerPool::WorkerPool(int threads) {
    for (int i = 1; i < threads; ++i)
        helpers_.push_back(Stream::make_worker("receiver copy " + std::to_string(i)));
}

void WorkerPool::run(std::size_t count, const std::function<void(std::size_t)>& job) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            for (std::size_t i = next++; i < count; i = next++) job(i);
        } catch (...) {
            next = count;
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    if (count > 1) {
        for (Stream& helper : helpers_) helper.enqueue(work);
    }
    work();
    for (Stream& helper : helpers_) helper.synchronize();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem::engine
