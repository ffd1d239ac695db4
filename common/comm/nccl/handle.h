// One communicator of NCCL and its non-blocking protocol: every call may answer "in progress", and is over
// when the asynchronous state says so; every such wait has a deadline. Abort from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/comm/nccl/api.h"
#include "common/deadline.h"

namespace tandem::comm::nccl {

class Handle {
  public:
    // Called from time to time while a call waits for NCCL, which does not know what else went wrong: ends
    // the wait by throwing.
    using Check = std::function<void()>;

    // Collective. Throws DeadlineExceeded when the others do not come, TransportError, CudaError.
    Handle(const Api& api, const UniqueId& id, int rank, int size, const std::string& name, Deadline deadline,
           const Check& check = {});
    // Finalizes, unless aborted: pending work may still finish, for a while.
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    const std::string& name() const { return name_; }
    // Runs `calls` between group start and end, one launch for all of them, then waits until NCCL has
    // launched. `calls` returns the first result that has failed().
    void launch(const std::string& phase, Deadline deadline,
                const std::function<Result(const Api&, Comm)>& calls, const Check& check = {});
    // The asynchronous state, for Watch: success, in_progress, or what went wrong. After an abort:
    // success.
    Result state();
    std::string last_error() const;
    // Registers the memory once; nothing where NCCL does not offer it or refuses.
    void register_memory(Span memory);
    // Before the memory is freed; a later register_memory() registers it again. Nothing may run on the
    // communicator.
    void deregister_all();

    void abort() noexcept;
    bool aborted() const { return aborted_.load(); }

    // Throws what a result other than success means.
    [[noreturn]] static void fail(const Api& api, Result result, const std::string& phase,
                                  const std::string& detail);

  private:
    void deregister();  // under the mutex
    // Waits until nothing is in progress any more.
    void settle(Result result, const std::string& phase, Deadline deadline, const Check& check = {});

    const Api& api_;
    const std::string name_;
    mutable std::mutex mutex_;  // NCCL's calls on one communicator come one at a time
    std::atomic<bool> aborted_{false};
    Comm comm_ = nullptr;
    std::map<std::byte*, void*> registered_;
};

}  // namespace tandem::comm::nccl
