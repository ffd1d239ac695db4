#include "engine_adapter/receiver/worker_pool.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/cores.h"

namespace tandem::engine {
namespace {

// One list of jobs. A helper that comes when all of them are taken finds it closed, and touches nothing of the caller's:
// where threads outnumber cores it may come late, and is not waited for.
class SharedJobs {
  public:
    SharedJobs(std::size_t count, const std::function<void(std::size_t)>& job) : count_(count), job_(job) {}

    void help() {
        if ((state_.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0) work();
        if (state_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1)) state_.notify_all();
    }
    void work() {
        try {
            for (std::size_t i = next_++; i < count_; i = next_++) job_(i);
        } catch (...) {
            next_ = count_;
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
        }
    }
    void close() {
        state_.fetch_or(kClosed, std::memory_order_acq_rel);
        for (unsigned now = state_.load(); now != kClosed; now = state_.load()) state_.wait(now);
        if (failure_) std::rethrow_exception(failure_);
    }

  private:
    static constexpr unsigned kClosed = 1u << 31;
    const std::size_t count_;
    const std::function<void(std::size_t)>& job_;
    std::atomic<std::size_t> next_{0};
    std::atomic<unsigned> state_{0};  // helpers inside, and kClosed
    std::mutex mutex_;
    std::exception_ptr failure_;
};

}  // namespace

// A thread that stays on a core. Behind a task it looks for the next one for about half a millisecond, in which a trainer fills
// the next bucket, and yields to whoever wants the core at each look. Then it sleeps: to wake a sleeping core takes 30 µs
// on a virtual machine, and with one such wait at each end of a bucket a push took a tenth longer.
class WorkerPool::CoreThread {
  public:
    // left: is one less whenever a task has ended; outlives this.
    CoreThread(int core, Left& left)
        : left_(left), thread_(Stream::make_worker("receiver copy on core " + std::to_string(core))) {
        thread_.enqueue([core] { stay_on(core); });
    }
    // Not before the task of the last call has ended.
    void post(std::function<void()> task) {
        task_ = std::move(task);
        if (looking_.exchange(false, std::memory_order_acq_rel)) return;
        thread_.enqueue([this] { work(); });
    }

  private:
    static constexpr int kLooks = 1500;  // some 0.3 µs each where nobody else wants the core

    void work() {
        do {
            task_();
            looking_.store(true, std::memory_order_release);  // before the next task may come
            left_.end_one();
            for (int look = 0; look < kLooks && looking_.load(std::memory_order_acquire); ++look)
                std::this_thread::yield();
        } while (!looking_.exchange(false, std::memory_order_acq_rel));
    }

    std::function<void()> task_;
    Left& left_;
    std::atomic<bool> looking_{false};
    Stream thread_;  // last: it ends before what it uses goes
};

void WorkerPool::Left::end_one() {
    const std::lock_guard lock(mutex);
    if (--threads == 0) none.notify_all();
}

WorkerPool::~WorkerPool() = default;

WorkerPool::WorkerPool(int threads) {
    for (int i = 1; i < threads; ++i)
        helpers_.push_back(Stream::make_worker("receiver copy " + std::to_string(i)));
}

void WorkerPool::run(std::size_t count, const std::function<void(std::size_t)>& job) {
    const auto jobs = std::make_shared<SharedJobs>(count, job);
    if (count > 1) {
        for (Stream& helper : helpers_) helper.enqueue([jobs] { jobs->help(); });
    }
    jobs->work();
    jobs->close();
}

bool WorkerPool::hold(const std::function<int(std::size_t)>& core, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (on_core_.contains(core(i))) continue;
        if (on_core_.size() > helpers_.size()) return false;
        on_core_.emplace(core(i), std::make_unique<CoreThread>(core(i), left_));
    }
    return true;
}

void WorkerPool::run_on(const std::function<int(std::size_t)>& core, std::size_t count,
                        const std::function<void(std::size_t)>& job, const std::function<void()>& meanwhile) {
    if (!hold(core, count)) return run(count, job);
    std::mutex mutex;
    std::exception_ptr failure;
    left_.threads = on_core_.size();
    for (auto& [on, worker] : on_core_) {
        const auto task = [&, on = on] {
            try {
                for (std::size_t i = 0; i < count; ++i) {
                    if (core(i) == on) job(i);
                }
            } catch (...) {
                const std::lock_guard lock(mutex);
                failure = std::current_exception();
            }
        };
        worker->post(task);
    }
    wait(meanwhile);
    if (failure) std::rethrow_exception(failure);
}

void WorkerPool::wait(const std::function<void()>& meanwhile) {
    constexpr auto kLook = std::chrono::milliseconds(5);
    const auto none = [this] { return left_.threads == 0; };
    std::unique_lock lock(left_.mutex);
    if (!meanwhile) return left_.none.wait(lock, none);
    while (!left_.none.wait_for(lock, kLook, none)) {
        lock.unlock();
        meanwhile();
        lock.lock();
    }
}

}  // namespace tandem::engine
