// Streams and events. A Stream runs work in order; an Event marks a point in it. On the CPU a stream is an
// in-order queue with its own worker thread, or `inline`: work runs at once on the calling thread, which is
// what compute uses. On a GPU it is a CUDA stream: enqueue() then runs its function at once on the
// calling thread, and that launches what the GPU does later.
//
// An exception thrown by work on a worker stream sticks to the stream: later work is skipped, and
// synchronize() and the events recorded after it rethrow it. A GPU's asynchronous error sticks likewise.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/deadline.h"
#include "common/device/device.h"

namespace tandem {

class Stream;
namespace detail {
struct EventState;
class StreamBackend;
}  // namespace detail

enum class Poll { pending, done, failed };

// Copies share the same mark. A default-constructed or never recorded event counts as done.
class Event {
  public:
    Event() = default;
    Poll poll() const;
    // Blocks the calling thread. Rethrows the stream's error. Throws DeadlineExceeded.
    void wait(Deadline deadline) const;

  private:
    friend class Stream;
    std::shared_ptr<detail::EventState> state_;
};

class Stream {
  public:
    static Stream make_inline();
    static Stream make_worker(std::string name);
    // For work beside the computation: a worker on the CPU. Throws DeviceUnavailable.
    static Stream make(Device device, std::string name);
    // For the computation: inline on the CPU. On a GPU device_pool() follows its order for the calling thread
    // until it ends, then that of the thread's one before; a thread without one follows the process's first.
    static Stream make_compute(Device device);

    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();  // drains, then joins the worker; logs a pending error, never throws

    Device device() const;
    bool is_inline() const;
    const std::string& name() const;
    void enqueue(std::function<void()> work);
    // Runs `work` on the host after the stream's work so far: it has run when a synchronize() called from
    // here on returns, which throws what it threw. A GPU does not stop for it: there that synchronize()
    // itself runs it, or nobody. It may not touch the GPU, nor wait for it; on the CPU this is enqueue()
    // (inline: now).
    void call_host(std::function<void()> work);
    Event record();  // an event that is done when all work enqueued so far is done
    // Later work of this stream starts after `event`. Blocks the caller of an inline stream; and of a GPU's
    // when the event is not a GPU's.
    void wait(const Event& event);
    void synchronize();  // blocks until the queue is empty; rethrows the stream's error

    // From now on device_pool(device()) follows this stream for the calling thread, as after make_compute.
    void use_for_allocations();

    // For common/ops: what its ops keep with the stream. It goes when the stream has drained.
    std::shared_ptr<void>& kept_by_ops();

    detail::StreamBackend& backend() const { return *backend_; }  // for common/device only

  private:
    explicit Stream(std::shared_ptr<detail::StreamBackend> backend);
    std::shared_ptr<detail::StreamBackend> backend_;
};

// Copies `from` to `to` (equal sizes) on the stream, between host and device either way; both stay the
// caller's until the stream is past it. A CPU stream copies host memory only.
void copy(Stream& stream, ConstSpan from, Span to);
void fill_zero(Stream& stream, Span memory);

}  // namespace tandem
