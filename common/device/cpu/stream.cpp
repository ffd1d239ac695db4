#include "common/device/stream.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "common/error.h"
#include "common/log.h"

namespace tandem {
namespace {

// The logger's registry is made on first use; here that is before any worker, and so it also outlives them
// all.
[[maybe_unused]] const spdlog::logger* const kLoggerIsMade = spdlog::default_logger_raw();

}  // namespace

struct Event::State {
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
};

Poll Event::poll() const {
    if (!state_) return Poll::done;
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) return Poll::pending;
    return state_->error ? Poll::failed : Poll::done;
}

void Event::wait(Deadline deadline) const {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_until(lock, deadline.at(), [&] { return state_->done; })) {
        throw DeadlineExceeded("stream " + state_->stream, "event", "not reached within the deadline");
    }
    if (state_->error) std::rethrow_exception(state_->error);
}

// Without a worker (`inline`), enqueue runs the work at once and an exception goes straight to the caller.
struct Stream::Impl {
    std::string name;
    bool is_inline = true;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false;
    bool closing = false;
    std::exception_ptr error;  // first failure; sticky
    std::thread worker;

    void run() {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return closing || !queue.empty(); });
            if (queue.empty()) return;
            std::function<void()> work = std::move(queue.front());
            queue.pop_front();
            busy = true;
            lock.unlock();
            std::exception_ptr failure;
            try {
                work();
            } catch (...) {
                failure = std::current_exception();
            }
            work = nullptr;  // releases what it captured before the stream counts as idle
            lock.lock();
            if (failure && !error) error = failure;
            busy = false;
            if (queue.empty()) changed.notify_all();
        }
    }

    std::exception_ptr sticky() {
        const std::lock_guard lock(mutex);
        return error;
    }

    void push(std::function<void()> work) {
        {
            const std::lock_guard lock(mutex);
            queue.push_back(std::move(work));
        }
        changed.notify_all();
    }
};

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
    Stream closing(std::move(*this));
    impl_ = std::move(other.impl_);
    return *this;
}

Stream Stream::make_inline() {
    auto impl = std::make_unique<Impl>();
    impl->name = "inline";
    return Stream(std::move(impl));
}

Stream Stream::make_worker(std::string name) {
    auto impl = std::make_unique<Impl>();
    impl->name = std::move(name);
    impl->is_inline = false;
    impl->worker = std::thread([raw = impl.get()] { raw->run(); });
    return Stream(std::move(impl));
}

Stream::~Stream() {
    if (!impl_ || impl_->is_inline) return;
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->closing = true;
    }
    impl_->changed.notify_all();
    impl_->worker.join();
    if (!impl_->error) return;
    try {
        std::rethrow_exception(impl_->error);
    } catch (const std::exception& error) {
        spdlog::debug("stream '{}' ended with a pending error: {}", impl_->name, error.what());
    } catch (...) {
        spdlog::debug("stream '{}' ended with a pending error", impl_->name);
    }
}

bool Stream::is_inline() const {
    return impl_->is_inline;
}
const std::string& Stream::name() const {
    return impl_->name;
}

void Stream::enqueue(std::function<void()> work) {
    if (impl_->is_inline) {
        work();
        return;
    }
    impl_->push([impl = impl_.get(), work = std::move(work)] {
        if (!impl->sticky()) work();
    });
}

Event Stream::record() {
    Event event;
    if (impl_->is_inline) return event;
    event.state_ = std::make_shared<Event::State>();
    event.state_->stream = impl_->name;
    impl_->push([impl = impl_.get(), state = event.state_] { state->finish(impl->sticky()); });
    return event;
}

void Stream::wait(const Event& event) {
    // No deadline of its own: the work that the event waits for has one, and fails the event when it passes.
    const auto wait_for = [event] {
        if (!event.state_) return;
        std::unique_lock lock(event.state_->mutex);
        event.state_->changed.wait(lock, [&] { return event.state_->done; });
        if (event.state_->error) std::rethrow_exception(event.state_->error);
    };
    enqueue(wait_for);
}

void Stream::synchronize() {
    if (impl_->is_inline) return;
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(lock, [&] { return impl_->queue.empty() && !impl_->busy; });
    if (impl_->error) std::rethrow_exception(impl_->error);
}

void copy(Stream& stream, ConstSpan from, Span to) {
    require(from.bytes == to.bytes, "copy of {} bytes into {}", from.bytes, to.bytes);
    stream.enqueue([from, to] {
        if (from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
    });
}

}  // namespace tandem
