// Streams and events. A Stream runs work in order; an Event marks a point in it. On the CPU a stream is an
// in-order queue with its own worker thread, or `inline`: work runs at once on the calling thread, which is
// what compute uses. (On CUDA it will be a CUDA stream; work is then launched, not run, by enqueue.)
//
// An exception thrown by work on a worker stream sticks to the stream: later work is skipped, and
// synchronize() and the events recorded after it rethrow it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/deadline.h"
#include "common/device/device.h"

namespace tandem {

class Stream;

enum class Poll { pending, done, failed };

// Copies share the same mark. A default-constructed or never recorded event counts as done.
class Event {
  public:
    Event() = default;
    Poll poll() const;
    // Blocks the calling thread. Rethrows the stream's error. Throws DeadlineExceeded.
    void wait(Deadline deadline) const;

    struct State;

  private:
    friend class Stream;
    std::shared_ptr<State> state_;
};

class Stream {
  public:
    static Stream make_inline();
    static Stream make_worker(std::string name);

    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();  // drains, then joins the worker; logs a pending error, never throws

    bool is_inline() const;
    const std::string& name() const;
    void enqueue(std::function<void()> work);
    Event record();  // an event that is done when all work enqueued so far is done
    void wait(
        const Event& event);  // later work of this stream starts after `event`; blocks only an inline stream
    void synchronize();       // blocks until the queue is empty; rethrows the stream's error

  private:
    struct Impl;
    explicit Stream(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Copies `from` to `to` (equal sizes) on the stream.
void copy(Stream& stream, ConstSpan from, Span to);

}  // namespace tandem
