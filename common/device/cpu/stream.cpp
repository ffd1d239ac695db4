// Streams of the CPU: in-order queues with a worker thread, and inline ones, whose work runs at once and
// whose exceptions go straight to the caller.
#include "common/device/cpu/stream.h"

#include <cstring>

#include "common/device/cpu_kernels.h"
#include "common/error.h"
#include "common/log.h"

namespace tandem::detail {
namespace {

// The logger's registry is made on first use; here that is before any worker, and so it also outlives them
// all.
[[maybe_unused]] const bool kLoggerIsMade = (make_log(), true);

struct WorkerEvent final : EventState {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    std::string stream;

    void finish(std::exception_ptr reason) {
        {
            const std::lock_guard lock(mutex);
            done = true;
            error = std::move(reason);
        }
        changed.notify_all();
    }

    Poll poll() override {
        const std::lock_guard lock(mutex);
        if (!done) return Poll::pending;
        return error ? Poll::failed : Poll::done;
    }

    void wait(Deadline deadline) override {
        std::unique_lock lock(mutex);
        if (!changed.wait_until(lock, deadline.at(), [&] { return done; })) {
            throw DeadlineExceeded("stream " + stream, "event", "not reached within the deadline");
        }
        if (error) std::rethrow_exception(error);
    }

    void wait() override {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return done; });
        if (error) std::rethrow_exception(error);
    }
};

void require_host(const std::string& name, const std::byte* data) {
    require(host_alias(data) == data,
            "stream '{}' is on the CPU and cannot touch a GPU's memory: use a stream of "
            "that GPU",
            name);
}

class InlineStream final : public StreamBackend {
  public:
    Device device() const override { return {}; }
    bool is_inline() const override { return true; }
    const std::string& name() const override { return name_; }
    void enqueue(std::function<void()> work) override { work(); }
    void call_host(std::function<void()> work) override { work(); }
    std::shared_ptr<EventState> record() override { return nullptr; }
    void wait(std::shared_ptr<EventState> event) override { event->wait(); }
    void synchronize() override {}
    void copy(ConstSpan from, Span to) override {
        require_host(name_, from.data);
        require_host(name_, to.data);
        std::memcpy(to.data, from.data, from.bytes);
    }
    void fill_zero(Span memory) override {
        require_host(name_, memory.data);
        std::memset(memory.data, 0, memory.bytes);
    }

  private:
    std::string name_ = "inline";
};

}  // namespace

std::shared_ptr<StreamBackend> make_inline_stream() {
    return std::make_shared<InlineStream>();
}

std::shared_ptr<StreamBackend> make_worker_stream(std::string name) {
    return std::make_shared<WorkerStream>(std::move(name));
}

WorkerStream::WorkerStream(std::string name) : name_(std::move(name)) {
    worker_ = Thread("of a stream", [this] { run(); });
}

WorkerStream::~WorkerStream() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    worker_.join();
    if (!error_) return;
    try {
        std::rethrow_exception(error_);
    } catch (const std::exception& error) {
        log_debug("stream '{}' ended with a pending error: {}", name_, error.what());
    } catch (...) {
        log_debug("stream '{}' ended with a pending error", name_);
    }
}

void WorkerStream::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        Item item = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        const bool due = item.always || !error_;
        lock.unlock();
        std::exception_ptr failure;
        try {
            if (due) item.work();
        } catch (...) {
            failure = std::current_exception();
        }
        item.work = nullptr;  // releases what it captured before the stream counts as idle
        lock.lock();
        if (failure && !error_) error_ = failure;
        busy_ = false;
        if (queue_.empty()) changed_.notify_all();
    }
}

std::exception_ptr WorkerStream::sticky() {
    const std::lock_guard lock(mutex_);
    return error_;
}

void WorkerStream::push(std::function<void()> work, bool always) {
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back({std::move(work), always});
    }
    changed_.notify_all();
}

void WorkerStream::enqueue(std::function<void()> work) {
    push(std::move(work));
}

void WorkerStream::call_host(std::function<void()> work) {
    push(std::move(work));
}

std::shared_ptr<EventState> WorkerStream::record() {
    auto state = std::make_shared<WorkerEvent>();
    state->stream = name_;
    push([this, state] { state->finish(sticky()); }, true);
    return state;
}

void WorkerStream::wait(std::shared_ptr<EventState> event) {
    push([event = std::move(event)] { event->wait(); });
}

void WorkerStream::synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
    if (error_) std::rethrow_exception(error_);
}

void WorkerStream::copy(ConstSpan from, Span to) {
    require_host(name_, from.data);
    require_host(name_, to.data);
    push([from, to] { std::memcpy(to.data, from.data, from.bytes); });
}

void WorkerStream::fill_zero(Span memory) {
    require_host(name_, memory.data);
    push([memory] { std::memset(memory.data, 0, memory.bytes); });
}

}  // namespace tandem::detail
