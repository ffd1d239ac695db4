// Watches over the calls that were launched on the GPU, since NCCL waits for a lost peer for ever. One thread
// a rank polls the pending calls, NCCL's asynchronous errors, and the host communicator for another rank's
// abort. Any of them ends all of NCCL's communicators of this rank, which lets the streams go on, and the
// job.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/nccl/handle.h"
#include "common/thread.h"

namespace tandem::comm::nccl {

class Watch {
  public:
    // `host`: the same ranks' world communicator of the CPU.
    explicit Watch(std::shared_ptr<Communicator> host);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // From now on `handle` is ended with the others.
    void add(const std::shared_ptr<Handle>& handle);
    // `phase` was launched on `handle` and should be at `done` before the deadline.
    void expect(std::shared_ptr<Handle> handle, Event done, std::string phase, Deadline deadline);
    // Ends the job for this reason.
    void abort(const std::string& reason) noexcept;
    void throw_if_aborted(const std::string& phase) const;
    std::optional<AbortNote> aborted() const { return host_->aborted(); }
    // Held while anything is launched: NCCL's kernels must start in one order on all ranks, so every rank
    // launches in the order of its calls, and a launch on another stream waits for the one before.
    class Launching {
      public:
        Launching(Watch& watch, Stream& stream);
        void launched(const Event& event);

      private:
        Watch& watch_;
        std::lock_guard<std::mutex> lock_;
    };

  private:
    struct Pending {
        std::shared_ptr<Handle> handle;
        Event done;
        std::string phase;
        Deadline deadline;
    };
    void run();
    bool look();  // false: the job is over
    void end_handles() noexcept;
    std::string who_is_late(const std::string& phase);

    std::shared_ptr<Communicator> host_;
    std::shared_ptr<Communicator> liveness_probe_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<Handle>> handles_;
    std::vector<Pending> pending_;
    bool stop_ = false;
    std::mutex launch_order_;
    Event last_launch_;
    Thread thread_;
};

}  // namespace tandem::comm::nccl
