// Waiting for transfers of Gloo with deadlines. Gloo's own time-out closes the connections to all peers, so
// that no rank could be told any more which one was late: here a thread wakes the waiters instead.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/thread.h"

namespace tandem::comm::gloo {

using Context = ::gloo::transport::Context;

// One message to or from a peer, on its way from its construction on. The memory must stay until it is done
// or the transfer destroyed.
class Transfer {
  public:
    enum class Direction : std::uint8_t { send, recv };

    // `peer` is a rank of the world. Throws ::gloo::Exception when the connection is closed.
    static Transfer send(Context& context, ConstSpan memory, int peer, std::uint64_t slot);
    static Transfer recv(Context& context, Span memory, int peer, std::uint64_t slot);
    static Transfer recv_any(Context& context, Span memory, std::uint64_t slot);

    int peer() const { return peer_; }
    bool done() const { return done_; }

  private:
    friend class Waits;
    Transfer(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer, Direction direction, int peer)
        : buffer_(std::move(buffer)), direction_(direction), peer_(peer) {}
    // True: completed; false: woken. Throws ::gloo::Exception when the connection has closed.
    bool block(int& from);
    void wake();

    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
    Direction direction_;
    int peer_;
    bool done_ = false;
};

class Waits {
  public:
    enum class Outcome : std::uint8_t { done, late, woken, closed };

    Waits();
    ~Waits();
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

    // Blocks until the transfer is done, the deadline has passed, wake_all() was called, or its connection
    // has closed. `from`, for recv_any: the sender.
    Outcome wait(Transfer& transfer, Deadline deadline, int* from = nullptr);
    // From now on no wait blocks: each looks once whether its transfer is done. Any thread.
    void wake_all() noexcept;

  private:
    struct Waiter {
        Transfer* transfer;
        Deadline::Clock::time_point at;
        bool operator<(const Waiter& other) const {
            return at != other.at ? at < other.at : transfer < other.transfer;
        }
    };
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<Waiter> waiters_;  // by deadline
    Deadline::Clock::time_point sleeps_until_ = Deadline::Clock::time_point::max();
    bool woken_ = false;
    bool stop_ = false;
    Thread thread_;
};

}  // namespace tandem::comm::gloo
