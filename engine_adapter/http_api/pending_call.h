// A call of a server's on a thread of its own, for what two sides must do together: the caller does its half, and looks
// from time to time whether the server has failed with the other.
#pragma once

#include <functional>
#include <future>

namespace tandem::engine {

// The call must end by a deadline of its own: the destructor waits for it, and forgets how it ended.
class PendingCall {
  public:
    explicit PendingCall(std::function<void()> call);
    PendingCall(const PendingCall&) = delete;
    PendingCall& operator=(const PendingCall&) = delete;

    bool check();  // whether it has ended; throws what it threw; does not wait
    void wait();   // the same once it has ended

  private:
    std::future<void> ended_;
};

}  // namespace tandem::engine
